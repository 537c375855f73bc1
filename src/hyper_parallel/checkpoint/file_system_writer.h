#pragma once

// A checkpoint in a directory of a POSIX file system.
//
//   data-<save id>-<rank>.safetensors   one per rank that writes anything
//   .metadata                           the last to appear, by rename: it alone makes files a checkpoint
//   .save.lock                          held (flock) by the coordinator while it saves; lists ids of saves not yet
//   tidied
//
// Nothing that a checkpoint consists of is ever overwritten. All is flushed before the rename, and the rename before
// old files go. So whenever a saver dies the directory holds the old checkpoint or the new one, complete; a reader
// that has its files open keeps them.
//
// Whose files may go. `.save.lock` lists, line by line, the ids of this save and of the one that it replaces, written
// and flushed before the first data file. The next saver removes the data files of all listed ids but the published
// one. No other name is ever removed, but for files that the replaced metadata itself names.

#include <filesystem>
#include <memory>
#include <string>

#include "hyper_parallel/checkpoint/storage.h"

namespace hyper_parallel {

class Publication;

class FileSystemWriter : public StorageWriter {
 public:
  explicit FileSystemWriter(std::filesystem::path directory);
  ~FileSystemWriter() override;  // abandons a save that was begun and not published

  /// Creates the directory where it is missing (its parent must exist), takes the lock, and removes what dead saves
  /// left. Throws kFailedPrecondition if another save holds the lock, or if `.metadata` is there and not of this
  /// library (a checkpoint of another program is never replaced, and nothing of it is touched); kInvalidArgument if the
  /// path is no directory or its parent is missing; kDataLoss if the system fails.
  std::string begin() override;
  /// Streams the boxes from the planner's memory: computes checksums on the way, holds no copy. Throws kDataLoss if the
  /// system takes less than all (disk full, quota, I/O).
  CheckpointParts write(const std::string& save_id, int64_t rank, const SavePlan& plan, SavePlanner& planner,
                        Progress& progress) override;
  /// Throws kDataLoss if a data file is not there in full (the ranks do not share the directory), or if the system
  /// fails. Old files that cannot be removed are no fault: the next saver removes them. Where the message says that the
  /// metadata is in place but could not be flushed, the new checkpoint is what readers see, and the old one's files
  /// are kept too. After any other fault this save's files are removed. In every case the save ends and the lock
  /// is let go.
  void publish(const CheckpointMetadata& metadata) override;
  void abandon() noexcept override;

 private:
  std::filesystem::path directory_;
  std::unique_ptr<Publication>
      publication_;  // on the coordinator, from begin to publish or abandon, whatever these meet
};

/// "data-0123456789abcdef-00003.safetensors".
std::string data_file_name(const std::string& save_id, int64_t rank);

}  // namespace hyper_parallel
