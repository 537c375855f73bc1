#pragma once

// Between Python's C functions and C++: errors and warnings in both directions, and work without the GIL.

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "core_errors.h"

namespace hyper_parallel::bindings {

/// What a function of CPython returned, a new reference; throws the Python error that it set if that is null.
inline py::object checked(PyObject* result) {
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

/// The result of `body`, which runs without the GIL.
template <typename Body>
auto without_gil(const Body& body) {
  const py::gil_scoped_release no_gil;
  return body();
}

/// What every C function does that Python calls directly: C++ errors become Python's, torch's warnings Python warnings.
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
