#pragma once

// The DTensor's own functions: making one, laying it out otherwise, leaving, and its parts.

#include <torch/csrc/utils/pybind.h>

namespace hyper_parallel::bindings {

void bind_dtensor(py::module_& module);

}  // namespace hyper_parallel::bindings
