#pragma once

// From the arguments of a Python call to those of hyper_parallel::call.

#include <c10/util/SmallVector.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hyper_parallel/torch/operation_argument.h"

namespace hyper_parallel::bindings {

/// Arguments that refer to the Python objects they were made from: the caller's must stay alive. Destroyed with the
/// GIL.
struct PythonArguments {
  c10::SmallVector<Argument, 4> positional;
  c10::SmallVector<Keyword, 4> keywords;
  std::vector<py::tuple> lists;                                  // the items of lists, as they were read
  c10::SmallVector<std::shared_ptr<const DTensor>, 4> dtensors;  // what wrappers carried
};

/// `kwargs` is a dict, None or null. `device`, `layout`, `pin_memory` and `requires_grad` that ask for what a DTensor
/// has are left out. Throws kType, naming the operation, for an object that is no DTensor, plain tensor, number, dtype,
/// memory format, text, None or list of these, and kInvalidArgument for an int beyond int64.
PythonArguments arguments_from_python(std::string_view operation, std::span<PyObject* const> arguments,
                                      py::handle kwargs);

/// True for a number that is none of Python's own: numpy's scalars.
bool is_number_like(py::handle object);

}  // namespace hyper_parallel::bindings
