#pragma once

// The differentiable collectives of variable length.

#include <torch/csrc/utils/pybind.h>

namespace hyper_parallel::bindings {

void bind_collectives(py::module_& module);

}  // namespace hyper_parallel::bindings
