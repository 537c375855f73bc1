#pragma once

// How the ranks of a save or load talk, in Python: alone, or over what a framework in Python sends messages with.

#include <pybind11/pybind11.h>

namespace hyper_parallel::bindings {

void bind_exchanges(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
