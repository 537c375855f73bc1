#pragma once

#include <pybind11/pybind11.h>

namespace hyper_parallel::bindings {

/// Placement, Replicate, Shard, Partial and RaggedShard.
void bind_placements(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
