#pragma once

// What the ranks of a save say that they wrote, checked and put together.

#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/save_plan.h"

namespace hyper_parallel {

/// `parts` if its tensors have exactly the boxes of `assigned`, in any order; tensors without boxes are added where
/// they are missing. Throws kInternal, naming the tensor, if not, or if a chunk lies in none of the files.
CheckpointParts checked_parts(CheckpointParts parts, const SavePlan& assigned);

/// Files and tensors of all ranks: files by name, each once, and chunks numbered by them, in the order of the ranks.
/// Throws kInternal for a file to which ranks give unlike sizes. What ranks have checked is believed.
CheckpointParts unite_parts(std::vector<CheckpointParts> parts);

}  // namespace hyper_parallel
