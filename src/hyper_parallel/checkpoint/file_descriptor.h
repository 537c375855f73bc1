#pragma once

// An open POSIX file that closes itself, and the rule for the errors of opening one.
//
//   the path itself is wrong (nothing there, not a folder on the way, too long, a directory)   kInvalidArgument
//   the path may be right but the machine does not let us (permission, no descriptors, I/O)    kFailedPrecondition
//
// Faults of reading, writing and flushing an open file are kDataLoss. A call that a signal interrupts is made again.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {

class FileDescriptor {
 public:
  /// Owns `descriptor`, which must be open.
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor();

  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return descriptor_; }

 private:
  int descriptor_;  // -1 after a move
};

/// open(2) with O_CLOEXEC. `action` starts the message: "cannot open '/x/y': No such file or directory".
FileDescriptor open_file(const std::filesystem::path& path, int flags, mode_t mode, std::string_view action);

/// write(2) of all bytes, in as many calls as it takes. Throws kDataLoss, naming the file by `path`, if the system
/// fails or takes no byte: how many it took before is unknown.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path);

/// How far a read came, and the errno value that ended it: 0 where it was complete or came to the end of the file.
struct ReadOutcome {
  size_t bytes;
  int error;
};

/// pread(2) of as many bytes as `into` holds from byte `begin` of the file, in as many calls as it takes.
ReadOutcome read_all(int descriptor, int64_t begin, std::span<std::byte> into);

/// fsync(2): 0, or the errno of its failure.
int flush_descriptor(int descriptor);

/// The same for a directory. A file system that has nothing to flush for one (EINVAL) has not failed.
int flush_directory(int descriptor);

/// The path in single quotes, fit for one line of a message.
std::string quoted_path(const std::filesystem::path& path);

/// The system's text for an errno value.
std::string errno_text(int error);

}  // namespace hyper_parallel
