#pragma once

// The model through a checkpoint: saved by the ranks that redistributed it, loaded by other processes, fewer and laid
// out otherwise, and by one process as plain tensors; each compared with the file bit for bit.

#include <filesystem>
#include <vector>

#include "examples/reshard_model/model.h"
#include "examples/reshard_model/options.h"
#include "examples/reshard_model/rank_processes.h"
#include "examples/reshard_model/ranks.h"
#include "examples/reshard_model/report.h"
#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel::examples {

/// How many processes load what the others have saved.
inline constexpr int kLoadingProcesses = 3;

/// Saves `tensors`, which have the model's names, into `directory`.
PhaseResult save_model(const Ranks& ranks, const Model& model, const std::vector<DTensor>& tensors,
                       const std::filesystem::path& directory);

/// What one of the loading processes does: loads every tensor under units and dims of its own; rank 0 prints. Throws
/// kDataLoss on a rank whose part differs from the file.
void load_distributed(const Options& options, const ProcessContext& process, const std::filesystem::path& directory);

/// Loads every tensor whole, in one process; throws and prints likewise.
void load_plain(const Options& options, const std::filesystem::path& directory);

}  // namespace hyper_parallel::examples
