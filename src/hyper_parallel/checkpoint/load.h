#pragma once

// Loading, on any number of ranks: three rounds (`run_round`).
//
//   metadata   the coordinator reads it and sends it to all
//   plan       each rank plans and opens its files; the coordinator looks for entries that no rank wants
//   read       each rank reads and verifies
//
// Until the third no target is touched. If a newer save replaces the checkpoint before all ranks have their files
// open, all begin again with the new metadata: never a mixture.

#include "hyper_parallel/checkpoint/exchange.h"
#include "hyper_parallel/checkpoint/load_plan.h"
#include "hyper_parallel/checkpoint/planner.h"
#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/checkpoint/storage.h"

namespace hyper_parallel {

struct LoadRequest {
  /// Names of values that this rank wants; each must be stored as a value, or be allowed to be missing.
  std::vector<std::string> values = {};
  LoadOptions options = {};
};

/// Fills the planner's targets; returns the metadata, values and structure in it. Throws on all ranks alike; besides
/// what planner and reader throw: kInvalidArgument for a wanted value that is missing or stored as a tensor, and for
/// stored entries that no rank wants (unless allowed; up to ten are named); kDataLoss if a file is gone while the
/// metadata stays.
CheckpointMetadata load_checkpoint(Exchange& exchange, LoadPlanner& planner, StorageReader& reader,
                                   const LoadRequest& request, Progress& progress);

}  // namespace hyper_parallel
