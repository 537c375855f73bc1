#pragma once

#include <pybind11/pybind11.h>

namespace hyper_parallel::bindings {

/// What a framework needs that runs plans by itself: rank plans whose messages are packed and combined on bytes, how
/// gradients lie, and what local tensors must look like.
void bind_redistribute(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
