#pragma once

// A file that appears whole or not at all.
//
// Bytes go to a temporary file in the target's folder. `commit` flushes it to the disk, renames it over the target and
// flushes the folder. Until then the target, or its absence, is untouched; whoever has the old file open keeps the old
// content. Without a commit the temporary file is removed; a process that dies leaves it: `<target>.tmp-<hex digits>`,
// the digits chosen at random unless they are given.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "hyper_parallel/checkpoint/file_descriptor.h"

namespace hyper_parallel {

class AtomicFile {
 public:
  /// Creates the temporary file. Throws kInvalidArgument if the target is a directory, has no file name, or if its
  /// folder does not exist; kFailedPrecondition if the folder may not be written.
  explicit AtomicFile(std::filesystem::path path);
  /// The same with a temporary file of a known name, `<target>.tmp-<suffix>`, which must be free (kFailedPrecondition).
  AtomicFile(std::filesystem::path path, std::string_view suffix);
  ~AtomicFile();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Writes all of `bytes` behind what is there. Throws kDataLoss if the system takes less (disk full, quota), and the
  /// file is then given up: nobody knows how much of it arrived. Throws kFailedPrecondition after that and after
  /// `commit`.
  void append(std::span<const std::byte> bytes);

  /// Publishes the file, once. Throws kDataLoss if that fails, and the file is then given up; the target is as before,
  /// unless the message says that the file is in place but its folder could not be flushed, or may be in place.
  void commit();

  const std::filesystem::path& path() const { return path_; }

  /// True once the file is what `path` names, also where `commit` threw because the folder could not be flushed, or
  /// because the system cannot say whether it is.
  bool is_in_place() const { return in_place_; }

 private:
  void check_open() const;
  void give_up();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  bool in_place_ = false;
  std::optional<FileDescriptor> file_;  // empty once committed or given up
};

}  // namespace hyper_parallel
