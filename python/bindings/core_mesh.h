#pragma once

#include <pybind11/pybind11.h>

namespace hyper_parallel::bindings {

/// DeviceMesh.
void bind_mesh(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
