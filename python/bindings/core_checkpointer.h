#pragma once

// Saves and loads in Python.

#include <pybind11/pybind11.h>

namespace hyper_parallel::bindings {

void bind_checkpointer(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
