#pragma once

// The main job as one rank runs it.

#include <filesystem>

#include "examples/reshard_model/options.h"
#include "examples/reshard_model/rank_processes.h"

namespace hyper_parallel::examples {

/// Takes the model through all phases and saves it, as it then lies, into `checkpoint`; rank 0 prints. Throws kDataLoss
/// on rank 0 if anything differs from the file or more bytes were sent than the lower bound, and on any rank what the
/// library throws.
void run_rank(const Options& options, const ProcessContext& process, const std::filesystem::path& checkpoint);

}  // namespace hyper_parallel::examples
