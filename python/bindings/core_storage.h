#pragma once

// The storages' roles in Python, and the storage of the file system.

#include <pybind11/pybind11.h>

namespace hyper_parallel::bindings {

void bind_storages(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
