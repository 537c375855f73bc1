#include "core_value.h"

#include <string>
#include <utility>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

std::string utf8_text(py::handle object, std::string_view what) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    raise(ErrorCode::kInvalidArgument, what, " has text ", repr_text(object), " that is not valid Unicode");
  }
  return {text, static_cast<size_t>(size)};
}

Value integer_value(py::handle object) {
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) return value;
  return BigInteger{py::str(object).cast<std::string>()};
}

class Converter {
 public:
  explicit Converter(std::string_view what) : what_(what) {}

  Value convert(py::handle object, int depth) const {
    HP_CHECK(depth <= kMaxValueDepth, kInvalidArgument, what_, " is nested deeper than ", kMaxValueDepth, " levels");
    PyObject* raw = object.ptr();
    if (object.is_none()) return {};
    if (PyBool_Check(raw)) return raw == Py_True;
    if (PyLong_CheckExact(raw)) return integer_value(object);
    if (PyFloat_CheckExact(raw)) return PyFloat_AS_DOUBLE(raw);
    if (PyComplex_CheckExact(raw))
      return std::complex<double>(PyComplex_RealAsDouble(raw), PyComplex_ImagAsDouble(raw));
    if (PyUnicode_CheckExact(raw)) return utf8_text(object, what_);
    if (PyBytes_CheckExact(raw)) return Bytes{py::reinterpret_borrow<py::bytes>(object).cast<std::string>()};
    if (PyList_CheckExact(raw)) return ValueList{items(object, depth)};
    if (PyTuple_CheckExact(raw)) return ValueTuple{items(object, depth)};
    if (PyDict_CheckExact(raw)) return dict(object, depth);
    raise(ErrorCode::kType, what_, " holds ", repr_text(object), " of type ", Py_TYPE(raw)->tp_name,
          "; a checkpoint keeps None, bool, int, float, complex, str, bytes, list, tuple and dict, of exactly these "
          "types");
  }

 private:
  std::vector<Value> items(py::handle sequence, int depth) const {
    std::vector<Value> values;
    for (const py::handle item : sequence) values.push_back(convert(item, depth + 1));
    return values;
  }

  Value dict(py::handle object, int depth) const {
    ValueDict values;
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(object)) {
      values.items.emplace_back(convert(key, depth + 1), convert(value, depth + 1));
    }
    return values;
  }

  std::string_view what_;
};

py::object integer_object(const std::string& digits) {
  PyObject* made = PyLong_FromString(digits.c_str(), nullptr, 10);
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

py::object raw_value_to_python(const Value& value);

struct ToPython {
  py::object operator()(std::monostate) const { return py::none(); }
  py::object operator()(bool value) const { return py::bool_(value); }
  py::object operator()(int64_t value) const { return py::int_(value); }
  py::object operator()(const BigInteger& value) const { return integer_object(value.digits); }
  py::object operator()(double value) const { return py::float_(value); }
  py::object operator()(std::complex<double> value) const {
    return py::reinterpret_steal<py::object>(PyComplex_FromDoubles(value.real(), value.imag()));
  }
  py::object operator()(const std::string& value) const { return py::str(value); }
  py::object operator()(const Bytes& value) const { return py::bytes(value.data); }
  py::object operator()(const ValueList& value) const {
    py::list items(value.items.size());
    for (size_t i = 0; i < value.items.size(); ++i) items[i] = raw_value_to_python(value.items[i]);
    return items;
  }
  py::object operator()(const ValueTuple& value) const {
    py::tuple items(value.items.size());
    for (size_t i = 0; i < value.items.size(); ++i) items[i] = raw_value_to_python(value.items[i]);
    return items;
  }
  py::object operator()(const ValueDict& value) const {
    py::dict items;
    for (const auto& [key, item] : value.items) items[raw_value_to_python(key)] = raw_value_to_python(item);
    HP_CHECK(items.size() == value.items.size(), kDataLoss,
             "a stored dict has keys that are equal in Python, as 1, 1.0 "
             "and True are");
    return items;
  }
};

py::object raw_value_to_python(const Value& value) { return std::visit(ToPython{}, value.variant()); }

}  // namespace

Value value_from_python(py::handle object, std::string_view what) { return Converter(what).convert(object, 0); }

py::object value_to_python(const Value& value, std::string_view what) {
  try {
    return raw_value_to_python(value);
  } catch (const py::error_already_set& error) {
    raise(ErrorCode::kDataLoss, what, " is a value that Python cannot hold: ", error.what());
  }
}

std::vector<NamedValue> named_values_from_python(py::handle values, std::string_view argument) {
  HP_CHECK(PyDict_Check(values.ptr()), kType, argument, " is ", repr_text(values), " but must be a dict");
  std::vector<NamedValue> named;
  for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(values)) {
    HP_CHECK(PyUnicode_Check(key.ptr()), kType, argument, " has key ", repr_text(key), " but keys must be str");
    std::string name = utf8_text(key, argument);
    const std::string what = str_cat("checkpoint entry ", quoted_name(name));
    named.push_back({std::move(name), value_from_python(value, what)});
  }
  return named;
}

py::dict named_values_to_python(const std::vector<NamedValue>& values) {
  py::dict named;
  for (const NamedValue& value : values) {
    const std::string what = str_cat("checkpoint entry ", quoted_name(value.name));
    named[py::str(value.name)] = value_to_python(value.value, what);
  }
  return named;
}

}  // namespace hyper_parallel::bindings
