#pragma once

// The planners of torch tensors, and the exchange over a process group.

#include <torch/csrc/utils/pybind.h>

namespace hyper_parallel::bindings {

void bind_tensor_planners(py::module_& module);

}  // namespace hyper_parallel::bindings
