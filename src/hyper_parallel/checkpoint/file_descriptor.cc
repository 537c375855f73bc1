#include "hyper_parallel/checkpoint/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

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

std::string quoted_path(const std::filesystem::path& path) { return str_cat("'", printable(path.string()), "'"); }

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace hyper_parallel
