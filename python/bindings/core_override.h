#pragma once

// Python classes that fill a C++ role: calls of their methods from C++ threads, and what comes back.

#include <pybind11/pybind11.h>

#include <memory>
#include <string_view>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/planner.h"

namespace hyper_parallel::bindings {

/// Throws what a Python method raised as the library's Error: an error of the library keeps its code, a builtin gets
/// that of its kind, anything else kFailedPrecondition. The text starts with the Python class where it is not ours.
[[noreturn]] void raise_python_error(const pybind11::error_already_set& error);

/// Calls `body` with the GIL; errors as above. The result must not be a Python object.
template <typename Body>
auto with_python(const Body& body) {
  const pybind11::gil_scoped_acquire gil;
  try {
    return body();
  } catch (const pybind11::error_already_set& error) {
    raise_python_error(error);
  } catch (const pybind11::cast_error& error) {
    raise(ErrorCode::kType, error.what());
  }
}

/// The override of `name` in the Python class of `self`; throws kUnimplemented if there is none.
template <typename Base>
pybind11::function required_override(const Base* self, const char* name) {
  pybind11::function method = pybind11::get_override(self, name);
  HP_CHECK(method, kUnimplemented, "the class must define the method ", name);
  return method;
}

/// The memory of a Python object: one with the buffer protocol (bytes, memoryview, numpy), or a tensor of the framework
/// in use. Throws kType, naming `what`, if it is not contiguous.
HeldBytes contiguous_bytes(const pybind11::object& object, std::string_view what);
/// The same for an object that must have `bytes` bytes; throws kInvalidArgument otherwise.
HeldBytes held_bytes(const pybind11::object& object, int64_t bytes, std::string_view what);
/// The same, to be written to: the object's own memory, never a copy of it.
TargetView writable_bytes(const pybind11::object& object, int64_t elements, int64_t bytes, std::string_view what);
/// Memory for cells of `sizes`, `bits` bits each: a writable buffer of that shape and item size, of whatever strides
/// (a part of a numpy array), else as `writable_bytes`.
TargetView writable_cells(const pybind11::object& object, const Dims& sizes, int64_t bits, std::string_view what);
/// The same of whatever size, in bytes.
TargetView contiguous_writable_bytes(const pybind11::object& object, std::string_view what);

/// Read-only, and alive as long as the view: a memoryview's exporter is a bytes-like object that holds `held`.
pybind11::object memory_view(HeldBytes held);

/// Keeps a Python object alive from C++, wherever the last reference goes.
std::shared_ptr<void> keep_alive(pybind11::object object);

}  // namespace hyper_parallel::bindings
