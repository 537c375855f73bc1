#include "hyper_parallel/checkpoint/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

constexpr size_t kMaxCallBytes = size_t{1} << 30;  // read(2) and write(2) take less than 2 GiB at a time

ErrorCode open_fault_code(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kFailedPrecondition;
  }
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileDescriptor open_file(const std::filesystem::path& path, int flags, mode_t mode, std::string_view action) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  const int error = errno;
  if (descriptor < 0) raise(open_fault_code(error), action, " ", quoted_path(path), ": ", errno_text(error));
  return FileDescriptor(descriptor);
}

void write_all(int descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t taken = ::write(descriptor, bytes.data(), std::min(bytes.size(), kMaxCallBytes));
    const int error = errno;
    if (taken < 0 && error == EINTR) continue;
    HP_CHECK(taken != 0, kDataLoss, "cannot write ", quoted_path(path), ": the system takes no byte");
    HP_CHECK(taken > 0, kDataLoss, "cannot write ", quoted_path(path), ": ", errno_text(error));
    bytes = bytes.subspan(static_cast<size_t>(taken));
  }
}

ReadOutcome read_all(int descriptor, int64_t begin, std::span<std::byte> into) {
  size_t done = 0;
  while (done < into.size()) {
    const std::span<std::byte> rest = into.subspan(done, std::min(into.size() - done, kMaxCallBytes));
    const ssize_t count = ::pread(descriptor, rest.data(), rest.size(), begin + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return {done, errno};
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return {done, 0};
}

int flush_descriptor(int descriptor) {
  while (::fsync(descriptor) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int flush_directory(int descriptor) {
  const int error = flush_descriptor(descriptor);
  return error == EINVAL ? 0 : error;
}

std::string quoted_path(const std::filesystem::path& path) { return str_cat("'", printable(path.string()), "'"); }

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace hyper_parallel
