#pragma once

// New DTensors: constant and random ones.

#include <torch/csrc/utils/pybind.h>

namespace hyper_parallel::bindings {

void bind_factories(py::module_& module);

}  // namespace hyper_parallel::bindings
