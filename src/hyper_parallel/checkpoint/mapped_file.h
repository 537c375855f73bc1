#pragma once

// A regular file mapped read-only into memory. Pages are read when touched, so opening a file of any size is cheap.
//
// The file must not be shortened while it is mapped: touching a page that is gone ends the process (SIGBUS). A file
// that is replaced by rename, as this library writes files, keeps its old content here.

#include <cstddef>
#include <filesystem>
#include <span>

namespace hyper_parallel {

class MappedFile {
 public:
  /// Throws kInvalidArgument if nothing is there or if it is not a regular file (a directory, a pipe, a device),
  /// kFailedPrecondition if it cannot be opened for another reason, kDataLoss if it cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// The whole file; empty for a file of 0 bytes. The address is that of a page, so it is aligned for any type.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace hyper_parallel
