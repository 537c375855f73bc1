#pragma once

// Reads a checkpoint from a directory.
//
// Reads exactly the blocks that the plan's items touch, each once, in the order of the disk, and verifies each before
// its cells count. A block that lies in the target in one run is read straight into place; others pass through a buffer
// per thread. So a load never holds more than its targets and a few MiB.
//
// No path leaves the directory: names are single components and are opened relative to the directory's descriptor
// without following symbolic links.

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "hyper_parallel/checkpoint/chunk_reader.h"
#include "hyper_parallel/checkpoint/directory.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/storage.h"

namespace hyper_parallel {

/// What a rank reads with by default. A few hide the latency of storage and share out what one rank has more of than
/// others; ranks on one machine compete for its processors.
inline constexpr int kReadThreads = 4;
inline constexpr int kMostReadThreads = 256;

class FileSystemReader : public StorageReader {
 public:
  /// `threads` read at once, this rank's own among them. Throws kInvalidArgument unless they are 1 to kMostReadThreads.
  explicit FileSystemReader(std::filesystem::path directory, int threads = kReadThreads);

  /// Throws kInvalidArgument if the directory or its `.metadata` is missing, kDataLoss if it is larger than
  /// kMaxMetadataBytes or cannot be read.
  std::string read_metadata() override;
  /// Throws kDataLoss for a file of another size than the metadata says, or that is no regular file (a symbolic link).
  /// Keeps up to 512 files open; of a plan that reads more, `read` opens the others for each block, and throws
  /// kDataLoss if one is gone.
  bool open(const CheckpointMetadata& metadata, const LoadPlan& plan) override;
  /// Throws kInvalidArgument for an item that does not fit the metadata, or whose target has no room for it.
  void read(const CheckpointMetadata& metadata, const LoadPlan& plan, LoadPlanner& planner,
            Progress& progress) override;

 private:
  void close();
  std::optional<FileDescriptor> open_data_file(const StoredFile& file) const;
  ReadBytes reads(const StoredFile& file, int64_t number) const;

  std::filesystem::path path_;
  int threads_;
  std::optional<Directory> directory_;       // from `open` to the end of `read`
  std::map<int64_t, FileDescriptor> files_;  // by index into the metadata's files
};

}  // namespace hyper_parallel
