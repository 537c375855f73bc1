#include "torch_arguments.h"

#include <torch/csrc/utils/tensor_numpy.h>

#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "torch_wrapper.h"

namespace hyper_parallel::bindings {
namespace {

std::string_view text_of(py::handle object) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (data == nullptr) throw py::error_already_set();
  return {data, static_cast<size_t>(size)};
}

int64_t integer_of(std::string_view operation, py::handle object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  HP_CHECK(overflow == 0, kInvalidArgument, "operation '", operation, "': the number ", std::string(py::str(object)),
           " does not fit int64");
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

at::Scalar complex_of(py::handle object) {
  const Py_complex value = PyComplex_AsCComplex(object.ptr());
  return c10::complex<double>(value.real, value.imag);
}

/// Converts the arguments of one call, and keeps what they refer to and the caller's tuple does not hold.
class Converter {
 public:
  Converter(std::string_view operation, PythonArguments& call) : operation_(operation), call_(call) {}

  Argument operator()(py::handle object) {
    PyObject* raw = object.ptr();
    if (is_wrapper(object)) return *call_.dtensors.emplace_back(unwrap_unchecked(object));
    if (object.is_none()) return {};
    if (THPVariable_Check(raw)) return plain(object);
    if (std::optional<at::Scalar> number = number_of(object)) return *number;
    return other(object);
  }

 private:
  std::optional<at::Scalar> number_of(py::handle object) const {
    PyObject* raw = object.ptr();
    if (PyFloat_Check(raw)) return at::Scalar(PyFloat_AS_DOUBLE(raw));
    if (PyBool_Check(raw)) return at::Scalar(raw == Py_True);
    if (PyLong_Check(raw)) return at::Scalar(integer_of(operation_, object));
    if (PyComplex_Check(raw)) return complex_of(object);
    return std::nullopt;
  }

  Argument plain(py::handle object) const {
    const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
    HP_CHECK(!tensor.unsafeGetTensorImpl()->is_python_dispatch(), kType, "operation '", operation_, "': a ",
             Py_TYPE(object.ptr())->tp_name,
             ", a tensor with a dispatch of its own, is not supported beside a DTensor");
    return tensor;
  }

  Argument other(py::handle object) {
    PyObject* raw = object.ptr();
    if (PyUnicode_Check(raw)) return text_of(object);
    if (THPDtype_Check(raw)) return reinterpret_cast<THPDtype*>(raw)->scalar_type;
    if (THPMemoryFormat_Check(raw)) return reinterpret_cast<THPMemoryFormat*>(raw)->memory_format;
    if (PyList_Check(raw) || PyTuple_Check(raw)) return list(object);
    if (is_number_like(object)) {
      // numpy's wider kinds give themselves back.
      if (std::optional<at::Scalar> number = number_of(object.attr("item")())) return *number;
    }
    raise(ErrorCode::kType, "operation '", operation_, "': an argument of type ", Py_TYPE(raw)->tp_name,
          " is not supported beside a DTensor");
  }

  Argument list(py::handle object) {
    const py::tuple items(py::reinterpret_borrow<py::object>(object));
    call_.lists.push_back(items);
    Argument::List converted;
    converted.reserve(items.size());
    for (const py::handle item : items) converted.push_back((*this)(item));
    return converted;
  }

  std::string_view operation_;
  PythonArguments& call_;
};

/// Whether a keyword that says where and how a new tensor is stored says what holds for the first operand anyway.
bool asks_for_the_same(std::string_view keyword, py::handle value, std::span<PyObject* const> arguments) {
  if (keyword == "layout")
    return THPLayout_Check(value.ptr()) && reinterpret_cast<THPLayout*>(value.ptr())->layout == c10::kStrided;
  if (keyword == "pin_memory" || keyword == "requires_grad") return value.ptr() == Py_False;
  if (keyword != "device" || value.is_none() || arguments.empty() || !is_wrapper(arguments.front())) return false;
  const at::Device own = THPVariable_Unpack(arguments.front()).device();
  const py::object given = py::module_::import("torch").attr("device")(value);
  const at::Device device = given.cast<at::Device>();
  return device.type() == own.type() && (!device.has_index() || !own.has_index() || device.index() == own.index());
}

}  // namespace

bool is_number_like(py::handle object) { return torch::utils::is_numpy_scalar(object.ptr()); }

PythonArguments arguments_from_python(std::string_view operation, std::span<PyObject* const> arguments,
                                      py::handle kwargs) {
  PythonArguments converted;
  Converter convert(operation, converted);
  for (PyObject* const argument : arguments) converted.positional.push_back(convert(argument));
  if (!kwargs || kwargs.is_none()) return converted;
  for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(kwargs)) {
    const std::string_view keyword = text_of(name);
    if (asks_for_the_same(keyword, value, arguments)) continue;
    converted.keywords.push_back({keyword, convert(value)});
  }
  return converted;
}

}  // namespace hyper_parallel::bindings
