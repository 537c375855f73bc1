#include "core_override.h"

#include <optional>
#include <string>
#include <utility>

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

ErrorCode code_of(const py::error_already_set& error) {
  const py::module_ core = py::module_::import("hyper_parallel._core");
  if (error.matches(core.attr("InternalError"))) return ErrorCode::kInternal;
  if (error.matches(PyExc_NotImplementedError)) return ErrorCode::kUnimplemented;
  if (error.matches(PyExc_ValueError)) return ErrorCode::kInvalidArgument;
  if (error.matches(PyExc_TypeError)) return ErrorCode::kType;
  if (error.matches(PyExc_IndexError)) return ErrorCode::kOutOfRange;
  if (error.matches(PyExc_OSError)) return ErrorCode::kDataLoss;
  return ErrorCode::kFailedPrecondition;
}

/// A buffer of Python's, given back with the GIL held.
struct HeldBuffer {
  Py_buffer view{};

  HeldBuffer(py::handle object, int flags, std::string_view what) {
    if (PyObject_GetBuffer(object.ptr(), &view, flags) == 0) return;
    PyErr_Clear();
    raise(ErrorCode::kType, what, " is of type ", Py_TYPE(object.ptr())->tp_name,
          " but must be contiguous memory: a bytes-like object or a tensor");
  }
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;
  ~HeldBuffer() {
    const py::gil_scoped_acquire gil;
    PyBuffer_Release(&view);
  }
};

/// A tensor's memory as an object with the buffer protocol, for which the platform has a function; any other object as
/// it is.
py::object as_buffer(const py::object& object, int flags) {
  if (PyObject_CheckBuffer(object.ptr()) != 0) return object;
  const bool is_written = (flags & PyBUF_WRITABLE) != 0;
  const py::module_ platform = py::module_::import("hyper_parallel.platform");
  return platform.attr(is_written ? "writable_host_buffer" : "host_buffer")(object);
}

/// The strides of a buffer with cells of these sizes and bytes, in cells; nothing for any other buffer.
std::optional<Dims> cell_strides(const Py_buffer& view, const Dims& sizes, int64_t width) {
  if (view.itemsize != width || view.strides == nullptr || static_cast<size_t>(view.ndim) != sizes.size()) return {};
  Dims strides(sizes.size(), 0);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (view.shape[d] != sizes[d] || view.strides[d] < 0 || view.strides[d] % width != 0) return {};
    strides[d] = view.strides[d] / width;
  }
  return strides;
}

std::shared_ptr<HeldBuffer> buffer_of(const py::object& object, int flags, int64_t bytes, std::string_view what) {
  auto held = std::make_shared<HeldBuffer>(as_buffer(object, flags), flags, what);
  HP_CHECK(held->view.len == bytes, kInvalidArgument, what, " has ", held->view.len, " bytes but must have ", bytes);
  return held;
}

}  // namespace

void raise_python_error(const py::error_already_set& error) {
  // The other ranks are told as of any error; this one's main thread is interrupted all the same.
  if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  const std::string type = py::str(error.type().attr("__name__"));
  const std::string text = py::str(error.value());
  const bool is_own =
      py::isinstance(error.value(), py::module_::import("hyper_parallel._core").attr("HyperParallelError"));
  raise(code_of(error), is_own ? "" : str_cat(type, ": "), text);
}

HeldBytes held_bytes(const py::object& object, int64_t bytes, std::string_view what) {
  auto held = buffer_of(object, PyBUF_C_CONTIGUOUS, bytes, what);
  const std::span<const std::byte> view(static_cast<const std::byte*>(held->view.buf), static_cast<size_t>(bytes));
  return {view, std::move(held)};
}

TargetView writable_bytes(const py::object& object, int64_t elements, int64_t bytes, std::string_view what) {
  auto held = buffer_of(object, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, bytes, what);
  const std::span<std::byte> view(static_cast<std::byte*>(held->view.buf), static_cast<size_t>(bytes));
  return {view, run_view(0, elements), std::move(held)};
}

TargetView writable_cells(const py::object& object, const Dims& sizes, int64_t bits, std::string_view what) {
  const int64_t elements = whole_box(sizes).numel();
  if (PyObject_CheckBuffer(object.ptr()) != 0 && bits % 8 == 0) {
    const int64_t width = bits / 8;
    auto held = std::make_shared<HeldBuffer>(object, PyBUF_STRIDES | PyBUF_WRITABLE, what);
    if (const auto strides = cell_strides(held->view, sizes, width)) {
      int64_t last = 0;
      for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * (*strides)[d];
      const std::span<std::byte> memory(static_cast<std::byte*>(held->view.buf),
                                        static_cast<size_t>((last + 1) * width));
      return {memory, collapsed_view(0, sizes, *strides), std::move(held)};
    }
  }
  return writable_bytes(object, elements, elements * bits / 8, what);
}

HeldBytes contiguous_bytes(const py::object& object, std::string_view what) {
  auto held = std::make_shared<HeldBuffer>(as_buffer(object, PyBUF_C_CONTIGUOUS), PyBUF_C_CONTIGUOUS, what);
  const auto* begin = static_cast<const std::byte*>(held->view.buf);
  return {{begin, static_cast<size_t>(held->view.len)}, std::move(held)};
}

TargetView contiguous_writable_bytes(const py::object& object, std::string_view what) {
  constexpr int kFlags = PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE;
  auto held = std::make_shared<HeldBuffer>(as_buffer(object, kFlags), kFlags, what);
  const std::span<std::byte> view(static_cast<std::byte*>(held->view.buf), static_cast<size_t>(held->view.len));
  return {view, run_view(0, held->view.len), std::move(held)};
}

py::object memory_view(HeldBytes held) {
  if (held.owner == nullptr) {
    // The planner keeps the bytes, nobody says for how long: a copy is safe to keep.
    return py::bytes(reinterpret_cast<const char*>(held.bytes.data()), held.bytes.size());
  }
  return py::cast(std::move(held));
}

std::shared_ptr<void> keep_alive(py::object object) {
  return {object.release().ptr(), [](void* held) {
            const py::gil_scoped_acquire gil;
            py::handle(static_cast<PyObject*>(held)).dec_ref();
          }};
}

}  // namespace hyper_parallel::bindings
