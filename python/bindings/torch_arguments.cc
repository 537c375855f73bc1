#include "torch_arguments.h"

#include <torch/csrc/utils/tensor_numpy.h>

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

/// Converts the arguments of one call. What they refer to and the caller's tuple does not hold is added to `kept`.
class Converter {
 public:
  Converter(std::string_view operation, std::vector<py::object>& kept) : operation_(operation), kept_(kept) {}

  Argument operator()(py::handle object) {
    PyObject* raw = object.ptr();
    if (is_wrapper(object)) return unwrap_unchecked(object);
    if (PyFloat_Check(raw)) return PyFloat_AS_DOUBLE(raw);
    if (PyBool_Check(raw)) return raw == Py_True;
    if (PyLong_Check(raw)) return integer_of(operation_, object);
    if (object.is_none()) return {};
    if (THPVariable_Check(raw)) return THPVariable_Unpack(raw);
    return other(object);
  }

 private:
  /// What is neither a tensor nor one of Python's most frequent numbers.
  Argument other(py::handle object) {
    PyObject* raw = object.ptr();
    if (PyComplex_Check(raw)) return complex_of(object);
    if (PyUnicode_Check(raw)) return text_of(object);
    if (THPDtype_Check(raw)) return reinterpret_cast<THPDtype*>(raw)->scalar_type;
    if (THPMemoryFormat_Check(raw)) return reinterpret_cast<THPMemoryFormat*>(raw)->memory_format;
    if (PyList_Check(raw) || PyTuple_Check(raw)) return list(object);
    if (is_number_like(object)) return (*this)(py::object(object.attr("item")()));
    raise(ErrorCode::kType, "operation '", operation_, "': an argument of type ", Py_TYPE(raw)->tp_name,
          " is not supported beside a DTensor");
  }

  /// A list may change while the operation runs without the GIL: its items are kept.
  Argument list(py::handle object) {
    const py::tuple items(py::reinterpret_borrow<py::object>(object));
    kept_.push_back(items);
    Argument::List converted;
    converted.reserve(items.size());
    for (const py::handle item : items) converted.push_back((*this)(item));
    return converted;
  }

  std::string_view operation_;
  std::vector<py::object>& kept_;
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
  Converter convert(operation, converted.kept);
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
