#pragma once

// What a rank should hold of a tensor, cut by torch alone: the library must not judge itself.

#include <ATen/core/Tensor.h>

#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel::examples {

/// The part of `whole` that this rank should hold under `tensor`'s layout.
at::Tensor expected_part(const DTensor& tensor, const at::Tensor& whole);

}  // namespace hyper_parallel::examples
