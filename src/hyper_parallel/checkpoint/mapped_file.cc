#include "hyper_parallel/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"

namespace hyper_parallel {
namespace {

size_t regular_file_size(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  HP_CHECK(::fstat(descriptor, &status) == 0, kDataLoss, "cannot read the size of ", quoted_path(path), ": ",
           errno_text(errno));
  HP_CHECK(!S_ISDIR(status.st_mode), kInvalidArgument, "cannot open ", quoted_path(path), ": it is a directory");
  HP_CHECK(S_ISREG(status.st_mode), kInvalidArgument, "cannot open ", quoted_path(path), ": it is not a regular file");
  return static_cast<size_t>(status.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not wait. It changes nothing for a regular file.
  const FileDescriptor file = open_file(path, O_RDONLY | O_NONBLOCK, 0, "cannot open");
  const size_t size = regular_file_size(file.get(), path);
  if (size == 0) return;  // a mapping cannot be empty
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  HP_CHECK(address != MAP_FAILED, kDataLoss, "cannot map ", quoted_path(path), " of ", size,
           " bytes: ", errno_text(errno));
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): munmap takes no pointer to const.
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace hyper_parallel
