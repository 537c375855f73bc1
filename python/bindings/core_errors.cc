#include "core_errors.h"

#include <pybind11/gil_safe_call_once.h>

#include <array>
#include <exception>
#include <string>
#include <string_view>

#include "hyper_parallel/base/text.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

struct ErrorClass {
  const char* name;
  PyObject* builtin;
  const char* doc;
};

/// The Python class of a code.
ErrorClass error_class(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return {"InvalidArgumentError", PyExc_ValueError, "An argument has a value that breaks a rule."};
    case ErrorCode::kType:
      return {"ArgumentTypeError", PyExc_TypeError, "An argument has the wrong type."};
    case ErrorCode::kOutOfRange:
      return {"OutOfRangeError", PyExc_IndexError, "A dim or an index lies outside what it counts."};
    case ErrorCode::kUnimplemented:
      return {"UnimplementedError", PyExc_NotImplementedError, "What was asked for has a meaning but is not offered."};
    case ErrorCode::kFailedPrecondition:
      return {"FailedPreconditionError", PyExc_RuntimeError, "The call needs a state that the process is not in."};
    case ErrorCode::kDataLoss:
      return {"CheckpointError", PyExc_OSError, "A checkpoint is damaged, incomplete or cannot be written."};
    case ErrorCode::kInternal:
      break;
  }
  return {"InternalError", PyExc_RuntimeError, "A fault of the library itself; please report it."};
}

constexpr std::array kCodes = {
    ErrorCode::kInvalidArgument,    ErrorCode::kType,     ErrorCode::kOutOfRange, ErrorCode::kUnimplemented,
    ErrorCode::kFailedPrecondition, ErrorCode::kDataLoss, ErrorCode::kInternal,
};

/// Classes name the module in which users find them.
py::object make_class(const char* name, const char* doc, PyObject* bases) {
  const std::string qualified = str_cat("hyper_parallel.errors.", name);
  PyObject* made = PyErr_NewExceptionWithDoc(qualified.c_str(), doc, bases, nullptr);
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

/// The classes by code, found in `_core` when first needed.
const std::array<py::object, kCodes.size()>& classes() {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<std::array<py::object, kCodes.size()>> storage;
  return storage
      .call_once_and_store_result([] {
        const py::module_ core = py::module_::import("hyper_parallel._core");
        std::array<py::object, kCodes.size()> found;
        for (const ErrorCode code : kCodes) found[static_cast<size_t>(code)] = core.attr(error_class(code).name);
        return found;
      })
      .get_stored();
}

}  // namespace

void bind_errors(py::module_& core) {
  const py::object base =
      make_class("HyperParallelError", "The base of every error that the library raises.", PyExc_Exception);
  core.add_object("HyperParallelError", base);
  for (const ErrorCode code : kCodes) {
    const ErrorClass described = error_class(code);
    const py::tuple bases = py::make_tuple(base, py::handle(described.builtin));
    core.add_object(described.name, make_class(described.name, described.doc, bases.ptr()));
  }
}

void translate(const Error& error) noexcept {
  try {
    const std::string_view text = error.what();
    // Texts may quote what is no UTF-8.
    const py::object message = py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
    if (message) PyErr_SetObject(classes()[static_cast<size_t>(error.code())].ptr(), message.ptr());
  } catch (py::error_already_set& not_found) {
    not_found.restore();  // the interpreter is shutting down, or the package is broken
  } catch (const std::exception& unexpected) {
    PyErr_SetString(PyExc_RuntimeError, unexpected.what());
  }
}

void register_error_translator() {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      translate(error);
    }
  });
}

}  // namespace hyper_parallel::bindings
