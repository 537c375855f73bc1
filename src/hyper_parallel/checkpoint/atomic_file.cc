#include "hyper_parallel/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>  // rename
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/random_word.h"

namespace hyper_parallel {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::string random_suffix() {
  std::ostringstream suffix;
  suffix << std::hex << random_word();
  return suffix.str();
}

std::filesystem::path temporary_beside(const std::filesystem::path& path, std::string_view suffix) {
  std::filesystem::path temporary = path;
  temporary += ".tmp-";
  temporary += suffix;
  return temporary;
}

enum class Place { kOurs, kOther, kUnknown };

// What `path` names behind a rename that failed: over a network it may have happened although its answer is lost.
Place place_of(const std::filesystem::path& path, const FileDescriptor& file) {
  struct stat there{};
  struct stat ours{};
  if (::stat(path.c_str(), &there) != 0) return errno == ENOENT ? Place::kOther : Place::kUnknown;
  if (::fstat(file.get(), &ours) != 0) return Place::kUnknown;
  return there.st_dev == ours.st_dev && there.st_ino == ours.st_ino ? Place::kOurs : Place::kOther;
}

// The rename itself is durable only once the folder is flushed.
void flush_folder(const std::filesystem::path& path) {
  const FileDescriptor folder = open_file(folder_of(path), O_RDONLY | O_DIRECTORY, 0, "cannot open");
  const int error = flush_directory(folder.get());
  HP_CHECK(error == 0, kDataLoss, quoted_path(path),
           " is in place, but may be lost in a crash: cannot flush its folder: ", errno_text(error));
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : AtomicFile(std::move(path), random_suffix()) {}

AtomicFile::AtomicFile(std::filesystem::path path, std::string_view suffix)
    : path_(std::move(path)), temporary_(temporary_beside(path_, suffix)) {
  HP_CHECK(path_.has_filename(), kInvalidArgument, "cannot write ", quoted_path(path_), ": the path has no file name");
  std::error_code ignored;  // what keeps us from looking shows when the temporary file is created
  HP_CHECK(!std::filesystem::is_directory(path_, ignored), kInvalidArgument, "cannot write ", quoted_path(path_),
           ": it is a directory");
  // O_EXCL: a file of that name, however unlikely, is not ours to overwrite.
  file_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL, 0666, "cannot create");
}

AtomicFile::~AtomicFile() { give_up(); }

void AtomicFile::check_open() const {
  HP_CHECK(file_.has_value(), kFailedPrecondition, "cannot write ", quoted_path(path_),
           ": it is no longer open, because it was committed or a write to it failed");
}

void AtomicFile::give_up() {
  if (!file_.has_value()) return;
  ::unlink(temporary_.c_str());
  file_.reset();
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  check_open();
  try {
    write_all(file_->get(), bytes, path_);
  } catch (...) {
    give_up();
    throw;
  }
}

void AtomicFile::commit() {
  check_open();
  if (const int error = flush_descriptor(file_->get()); error != 0) {
    give_up();
    raise(ErrorCode::kDataLoss, "cannot flush ", quoted_path(path_), ": ", errno_text(error));
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    const Place place = place_of(path_, *file_);
    in_place_ = place != Place::kOther;
    if (place != Place::kOurs) {
      give_up();
      raise(ErrorCode::kDataLoss, "cannot rename the temporary file to ", quoted_path(path_), ": ", errno_text(error),
            in_place_ ? "; it may be in place all the same, the system cannot say" : "");
    }
  }
  in_place_ = true;
  file_.reset();
  flush_folder(path_);
}

}  // namespace hyper_parallel
