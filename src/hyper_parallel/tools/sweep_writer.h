#pragma once

// Writes the data files of several ranks from one pass over the tensors.
//
// A file takes its chunks in its own fixed order. Files whose next chunks are of one tensor are served together: the
// tensor is swept once, in row-major order, and each file gets the cells that lie in its boxes. Nearly always all files
// name the tensors in one order, and then every byte is read once.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/tools/checkpoint_source.h"

namespace hyper_parallel {

/// A box to store: tensor by number in the source's metadata.
struct SweepChunk {
  int64_t tensor = 0;
  Box box;
};

/// A data file to write and the chunks that it gets; no two of them share a cell.
struct SweepFile {
  std::string name;
  std::vector<SweepChunk> chunks;
};

/// Writes the files into `directory` and flushes them. Returns of each what was written: the file, and its tensors with
/// their chunks. Holds what `slabs` holds and 1 MiB; all files are open together.
std::vector<CheckpointParts> sweep_into_files(const CheckpointMetadata& metadata, SlabReader& slabs,
                                              const std::filesystem::path& directory,
                                              const std::vector<SweepFile>& files, Progress& progress);

}  // namespace hyper_parallel
