#pragma once

// `hyper-parallel reshard IN OUT`: rewrites a checkpoint as N ranks under another layout would have saved it.
//
// The tensors are swept in row-major order, slab by slab: each slab is read and verified once, while the one before
// goes to the files of all ranks that hold a part of it. Checksums are computed afresh. Values and structure are
// carried over. OUT is published as a save publishes: complete or not at all; a checkpoint that is there is replaced.

#include <cstdint>
#include <filesystem>

#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/tools/reshard_layout.h"

namespace hyper_parallel {

struct ReshardOptions {
  ReshardLayout layout;
  /// The most memory for tensors' bytes, whatever their sizes. The metadata of both checkpoints comes on top.
  int64_t memory = int64_t{256} << 20;
};

inline constexpr int64_t kMinReshardMemory = int64_t{8} << 20;

/// Throws kInvalidArgument if OUT is IN, for too little memory, and as `stored_boxes`, before anything is written; as
/// CheckpointSource, FileSystemWriter and DataFile do. After a fault OUT is as it was, but that the directory may be
/// new and have a `.save.lock`, which every saver leaves (see save_lock.h).
void reshard_checkpoint(const std::filesystem::path& in, const std::filesystem::path& out,
                        const ReshardOptions& options, Progress& progress);

}  // namespace hyper_parallel
