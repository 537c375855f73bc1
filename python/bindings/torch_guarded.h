#pragma once

// What every C function does that Python calls directly: C++ errors become Python's, torch's warnings Python warnings.

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "core_errors.h"

namespace hyper_parallel::bindings {

/// The result of `body`, a py::object, as a new reference; null with a Python error set if it throws, or if a warning
/// was turned into an error.
template <typename Body>
PyObject* guarded(const Body& body) {
  // Outside the warning handler, whose destructor may throw: the result is then given back.
  py::object result;
  try {
    torch::PyWarningHandler warnings;
    try {
      result = body();
    } catch (...) {
      warnings.set_in_exception();
      throw;
    }
  } catch (const Error& error) {
    translate(error);
    return nullptr;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
  return result.release().ptr();
}

}  // namespace hyper_parallel::bindings
