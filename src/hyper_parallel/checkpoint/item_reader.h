#pragma once

// Reads the items of a plan, wherever the files are: the part of a load that every storage shares.

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/chunk_reader.h"
#include "hyper_parallel/checkpoint/planner.h"
#include "hyper_parallel/checkpoint/progress.h"

namespace hyper_parallel {

/// A data file, ready to be read.
struct OpenedFile {
  ReadBytes read;
  std::string path;  // in quotes, for messages
};

/// The file with that number among the metadata's; asked for once per chunk.
using OpenFile = std::function<OpenedFile(int64_t file)>;

/// The files that a plan reads. Throws kInvalidArgument for an item that does not fit the metadata.
std::set<int64_t> files_of(const CheckpointMetadata& metadata, const LoadPlan& plan);

/// Reads, verifies and delivers every item, in the order of files and chunks, each needed block once. Planner,
/// `open_file` and progress are called on this thread; with `threads` > 1 others read too, and call OpenedFile::read.
/// Throws kDataLoss as `read_chunk`; kInvalidArgument for an item that does not fit the metadata or whose target has no
/// room for it.
void read_items(const CheckpointMetadata& metadata, const LoadPlan& plan, LoadPlanner& planner, Progress& progress,
                const OpenFile& open_file, int threads);

}  // namespace hyper_parallel
