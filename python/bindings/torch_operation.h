#pragma once

// Runs an elementwise operation of the table on Python arguments, and Python's operators on the class DTensor by it.
//
// The operators are methods of the class itself rather than torch's, which would call back at `__torch_function__`:
// that is faster, and torch's would turn a TypeError with a reason into "unsupported operand type(s)".

#include <torch/csrc/utils/pybind.h>

#include <span>

#include "hyper_parallel/torch/operation_table.h"

namespace hyper_parallel::bindings {

/// The result: a DTensor, a tuple of them for a _foreach form, or, of an in-place form, the very object that was
/// written. `kwargs` may be null.
py::object run_operation(const Operation& operation, std::span<PyObject* const> arguments, py::handle kwargs);

void bind_operators(py::module_& module);

}  // namespace hyper_parallel::bindings
