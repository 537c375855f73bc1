#pragma once

// The file `.save.lock` of a checkpoint's directory: the lock that one saver holds, and the journal of saves whose
// files may still lie about.
//
// The lock is flock(2) of the file, so it ends with the process that holds it, however that ends. The file itself stays
// for good: to remove it would let two savers lock two files of one name.
//
// The journal has one id a line. A line that a dying saver wrote in part counts for nothing: its save had not begun.

#include <sys/types.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/directory.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"

namespace hyper_parallel {

inline constexpr const char* kSaveLockFile = ".save.lock";

class SaveLock {
 public:
  /// Creates the file where it is missing, takes the lock without waiting, and reads the journal. Throws
  /// kFailedPrecondition if another save holds the lock, if the file cannot be opened or if its content is not a
  /// journal; kDataLoss if the system fails.
  explicit SaveLock(const Directory& directory);
  /// Lets the lock go, in the process that took it: a forked child's copy has no say.
  ~SaveLock();
  SaveLock(const SaveLock&) = delete;
  SaveLock& operator=(const SaveLock&) = delete;
  SaveLock(SaveLock&&) = default;
  SaveLock& operator=(SaveLock&&) = delete;

  /// False in a child process that was forked since the lock was taken: the save is its parent's.
  bool is_ours() const noexcept;

  /// The ids in the journal.
  const std::vector<std::string>& ids() const { return ids_; }

  /// Adds ids and flushes the journal. Throws kDataLoss if the system fails.
  void add(std::span<const std::string> ids);

  /// Empties the journal; false if the system fails. A machine that crashes may forget it: then the ids are tidied
  /// once more.
  bool clear() noexcept;

 private:
  void read();

  std::filesystem::path path_;  // for messages
  pid_t owner_;
  FileDescriptor file_;
  std::string text_;
  std::vector<std::string> ids_;
};

}  // namespace hyper_parallel
