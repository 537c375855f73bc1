#pragma once

#include <pybind11/pybind11.h>

namespace hyper_parallel::bindings {

/// What a rank owns: local_shape, owned_boxes, owned_interval.
void bind_geometry(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
