#pragma once

// A checkpoint directory whose data files are opened right after its metadata is read, so that a save that replaces the
// checkpoint and removes them meanwhile takes nothing away.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/directory.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/metadata_file.h"

namespace hyper_parallel {

/// Reads `.metadata` alone. Throws kInvalidArgument if the directory or its `.metadata` is missing, kDataLoss as
/// parse_metadata does.
CheckpointMetadata read_checkpoint_metadata(const std::filesystem::path& directory);

class OpenedCheckpoint {
 public:
  /// How the text of `.metadata` is read; tests replace the checkpoint after it.
  using ReadText = std::function<std::optional<std::string>(const Directory& directory)>;

  /// So often the checkpoint is opened anew because a newer save has replaced it.
  static constexpr int kMostReplacements = 5;

  /// If a data file is missing and `.metadata` is by now another save's, begins anew with that. A file that is missing
  /// or cannot be opened is no fault here: `open` tells. Keeps a third of the files open that the process may have.
  /// Throws as `read_checkpoint_metadata`, and kFailedPrecondition if the checkpoint is replaced more often than
  /// kMostReplacements.
  explicit OpenedCheckpoint(std::filesystem::path path, ReadText read_text = read_metadata_file);

  const Directory& directory() const { return directory_; }
  const CheckpointMetadata& metadata() const { return metadata_; }

  /// The path of a data file, by its index into the metadata's files, in quotes.
  std::string quoted(int64_t file) const;

  /// A descriptor of the data file, or nothing if it is missing. Throws as Directory::open_regular. Descriptors of one
  /// file may share their position.
  std::optional<FileDescriptor> open(int64_t file) const;

  /// For a file that is missing: throws kFailedPrecondition if a newer save has replaced the checkpoint since it was
  /// opened, which happens only to files beyond those that are kept open.
  void check_not_replaced(int64_t file) const;

 private:
  bool keep_files_open();
  std::optional<CheckpointMetadata> newer_metadata() const;

  Directory directory_;
  ReadText read_text_;
  CheckpointMetadata metadata_;
  std::map<int64_t, FileDescriptor> files_;  // by index into the metadata's files
};

}  // namespace hyper_parallel
