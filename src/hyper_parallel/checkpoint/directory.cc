#include "hyper_parallel/checkpoint/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

struct CloseDirectory {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

bool is_dots(std::string_view name) { return name == "." || name == ".."; }

}  // namespace

Directory::Directory(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(open_file(path_, O_RDONLY | O_DIRECTORY, 0, "cannot open")) {}

bool Directory::is_at_its_path() const {
  struct stat there{};
  struct stat ours{};
  return ::stat(path_.c_str(), &there) == 0 && ::fstat(descriptor_.get(), &ours) == 0 && there.st_dev == ours.st_dev &&
         there.st_ino == ours.st_ino;
}

std::optional<FileDescriptor> Directory::open_regular(const std::string& name, int flags) const {
  // O_NONBLOCK: opening a pipe must not wait for its other end. It means nothing for regular files.
  const int descriptor =
      ::openat(descriptor_.get(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode_t{0666});
  const int error = errno;
  const auto path = [&] { return quoted_path(path_ / name); };
  if (descriptor < 0 && (error == ENOENT || error == ESTALE)) return std::nullopt;
  HP_CHECK(descriptor >= 0 || (error != ELOOP && error != ENXIO && error != EISDIR), kDataLoss, path(), " is ",
           error == ELOOP ? "a symbolic link" : "no regular file", ", but a checkpoint's files must be regular files");
  HP_CHECK(descriptor >= 0, kFailedPrecondition, "cannot open ", path(), ": ", errno_text(error));
  FileDescriptor file(descriptor);
  struct stat status{};
  HP_CHECK(::fstat(descriptor, &status) == 0, kDataLoss, "cannot examine ", path(), ": ", errno_text(errno));
  HP_CHECK(S_ISREG(status.st_mode), kDataLoss, path(),
           " is no regular file, but a checkpoint's files must be regular files");
  return file;
}

std::optional<struct stat> Directory::status(const std::string& name) const {
  struct stat status{};
  const bool found = ::fstatat(descriptor_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  const int error = errno;
  HP_CHECK(found || error == ENOENT, kDataLoss, "cannot examine ", quoted_path(path_ / name), ": ", errno_text(error));
  return found ? std::optional(status) : std::nullopt;
}

std::vector<std::string> Directory::names() const {
  // A descriptor of its own: the position of the stream belongs to the open file.
  const int descriptor = ::openat(descriptor_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = errno;
  HP_CHECK(descriptor >= 0, kDataLoss, "cannot list ", quoted_path(path_), ": ", errno_text(error));
  const std::unique_ptr<DIR, CloseDirectory> stream(::fdopendir(descriptor));
  if (stream == nullptr) {
    ::close(descriptor);
    raise(ErrorCode::kDataLoss, "cannot list ", quoted_path(path_), ": not enough memory");
  }
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    const int fault = errno;
    HP_CHECK(fault == 0, kDataLoss, "cannot list ", quoted_path(path_), ": ", errno_text(fault));
    if (entry == nullptr) return names;
    if (!is_dots(entry->d_name)) names.emplace_back(entry->d_name);
  }
}

void Directory::flush() const {
  const int error = flush_directory(descriptor_.get());
  HP_CHECK(error == 0, kDataLoss, "cannot flush ", quoted_path(path_), ": ", errno_text(error));
}

bool Directory::remove(const std::string& name) const noexcept {
  return ::unlinkat(descriptor_.get(), name.c_str(), 0) == 0 || errno == ENOENT;
}

}  // namespace hyper_parallel
