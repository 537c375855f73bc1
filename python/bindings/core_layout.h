#pragma once

#include <pybind11/pybind11.h>

namespace hyper_parallel::bindings {

/// Layout.
void bind_layout(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
