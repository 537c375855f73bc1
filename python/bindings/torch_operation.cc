#include "torch_operation.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/operation_call.h"
#include "hyper_parallel/torch/operation_rules.h"
#include "torch_arguments.h"
#include "torch_guarded.h"
#include "torch_wrapper.h"

namespace hyper_parallel::bindings {
namespace {

/// What an in-place form was given to write, or a view is of.
py::handle written_argument(std::span<PyObject* const> arguments, py::handle kwargs) {
  if (!arguments.empty()) return arguments.front();
  HP_DCHECK(kwargs);  // without any argument the call has failed
  PyObject* named = PyDict_GetItemString(kwargs.ptr(), "self");
  return named != nullptr ? named : PyDict_GetItemString(kwargs.ptr(), "input");
}

/// The result as a wrapper; of a view, one that knows its base.
py::object wrap_result(const Operation& operation, DTensor result, std::span<PyObject* const> arguments,
                       py::handle kwargs) {
  const at::Tensor local = result.local();
  py::object wrapped = wrap(std::move(result));
  if (!operation.is_view) return wrapped;
  const py::handle base = written_argument(arguments, kwargs);
  // Where the operand had to be redistributed, or was reshaped to a copy, nothing is shared.
  if (is_wrapper(base) && unwrap_unchecked(base)->local().is_alias_of(local)) set_base(wrapped, base);
  return wrapped;
}

/// Several results of one operation, named as torch names them: torch.return_types.max.
py::object named_results(const Operation& operation, const py::tuple& results) {
  const py::object types = py::module_::import("torch.return_types");
  return py::hasattr(types, operation.name.c_str()) ? types.attr(operation.name.c_str())(results) : py::object(results);
}

/// One of Python's operators.
struct Operator {
  const char* name;
  const char* operation;
};

constexpr auto kBinary = std::to_array<Operator>({
    {"__add__", "add"},   {"__radd__", "radd"},   {"__iadd__", "add_"},     {"__sub__", "sub"},
    {"__rsub__", "rsub"}, {"__isub__", "sub_"},   {"__mul__", "mul"},       {"__rmul__", "rmul"},
    {"__imul__", "mul_"}, {"__truediv__", "div"}, {"__rtruediv__", "rdiv"}, {"__itruediv__", "div_"},
    {"__pow__", "pow"},   {"__rpow__", "rpow"},   {"__ipow__", "pow_"},     {"__eq__", "eq"},
    {"__ne__", "ne"},     {"__lt__", "lt"},       {"__le__", "le"},         {"__gt__", "gt"},
    {"__ge__", "ge"},
});
constexpr auto kUnary = std::to_array<Operator>({{"__neg__", "neg"}, {"__abs__", "abs"}});

/// Whether an operator takes it; of anything else its own class may know better what to do.
bool is_operand(py::handle object) {
  PyObject* raw = object.ptr();
  return is_wrapper(object) || PyFloat_Check(raw) || PyLong_Check(raw) || PyComplex_Check(raw) ||
         THPVariable_Check(raw) || is_number_like(object);
}

/// Whether a class that is neither torch's nor ours wants to be asked by torch's function protocol.
bool has_own_function(py::handle object) {
  if (is_wrapper(object) || THPVariable_CheckExact(object.ptr()) || PyFloat_Check(object.ptr()) ||
      PyLong_Check(object.ptr())) {
    return false;
  }
  const py::object function = py::getattr(py::type::handle_of(object), "__torch_function__", py::none());
  // Tensor classes that leave it to their dispatch have this one.
  static PyObject* const kDisabled =
      py::object(py::module_::import("torch._C").attr("_disabled_torch_function_impl")).release().ptr();
  return !function.is_none() && function.ptr() != kDisabled;
}

/// torch's own operator, where a mode wants to see every function of torch.
py::object call_torch(const char* name, std::span<PyObject* const> arguments) {
  // Tensor.__eq__ and __ne__ ask nobody; the methods do.
  const std::string_view wanted = name;
  const char* method_name = wanted == "__eq__" ? "eq" : wanted == "__ne__" ? "ne" : name;
  const py::object method = py::reinterpret_borrow<py::object>(THPVariableClass).attr(method_name);
  return checked(PyObject_Vectorcall(method.ptr(), arguments.data(), arguments.size(), nullptr));
}

PyObject* run_operator(const char* name, const Operation& operation, std::span<PyObject* const> arguments) {
  return guarded([&] {
    const bool torch_decides = at::impl::torch_function_mode_enabled() || has_own_function(arguments.back());
    if (torch_decides) return call_torch(name, arguments);
    if (!is_operand(arguments.back())) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
    return run_operation(operation, arguments, {});
  });
}

// A method of a C type knows nothing but its arguments: each operator needs a function of its own, which finds its
// operation once.
template <size_t kIndex>
PyObject* binary(PyObject* self, PyObject* other) {
  static const Operation& kOperation = *find_operation(kBinary[kIndex].operation);
  return run_operator(kBinary[kIndex].name, kOperation, std::array{self, other});
}
template <size_t kIndex>
PyObject* unary(PyObject* self, PyObject* /*none*/) {
  static const Operation& kOperation = *find_operation(kUnary[kIndex].operation);
  return run_operator(kUnary[kIndex].name, kOperation, std::array{self});
}

template <size_t... kIndices>
std::array<PyMethodDef, sizeof...(kIndices)> binary_methods(std::index_sequence<kIndices...>) {
  return {PyMethodDef{kBinary[kIndices].name, &binary<kIndices>, METH_O, nullptr}...};
}
template <size_t... kIndices>
std::array<PyMethodDef, sizeof...(kIndices)> unary_methods(std::index_sequence<kIndices...>) {
  return {PyMethodDef{kUnary[kIndices].name, &unary<kIndices>, METH_NOARGS, nullptr}...};
}

void install(py::handle wrapper_class, PyMethodDef& method) {
  py::setattr(wrapper_class, method.ml_name,
              checked(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(wrapper_class.ptr()), &method)));
}

}  // namespace

py::object run_operation(const Operation& operation, std::span<PyObject* const> arguments, py::handle kwargs) {
  HP_CHECK(!torch::jit::tracer::isTracing(), kUnimplemented, "operation '", operation.name,
           "' on a DTensor cannot be traced by torch.jit");
  const PythonArguments converted = arguments_from_python(operation.name, arguments, kwargs);
  std::vector<DTensor> results = without_gil([&] { return call(operation, converted.positional, converted.keywords); });
  if (operation.writes) {
    const py::handle written = written_argument(arguments, kwargs);
    if (operation.is_list) {
      // The items as they were when the operation read them: the list itself may be another by now. The first list is
      // the written one; a named one may be any of them.
      const size_t count = arguments.empty() ? converted.lists.size() : 1;
      for (const py::tuple& items : std::span(converted.lists).first(count)) {
        for (const py::handle item : items) {
          if (is_wrapper(item)) follow_local(item);
        }
      }
    } else {
      follow_local(written);
    }
    return py::reinterpret_borrow<py::object>(written);
  }
  const bool many = operation.is_list || operation.returns_list || results.size() > 1;
  if (!many) return wrap_result(operation, std::move(results.front()), arguments, kwargs);
  py::tuple list(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    list[i] = wrap_result(operation, std::move(results[i]), arguments, kwargs);
  }
  return operation.is_list || operation.returns_list ? py::object(list) : named_results(operation, list);
}

void bind_operators(py::module_& module) {
  module.def(
      "ruled_operations",
      [] {
        std::vector<std::pair<std::string, std::string>> rows;
        for (const RuledRow& row : ruled_rows()) rows.emplace_back(row.name, row.meaning);
        return rows;
      },
      "The operations that have a rule, each with the rule's meaning, in the table's order.");
  module.def(
      "install_operators",
      [](const py::type& wrapper_class) {
        // The class's methods refer to these for as long as the process lives.
        static auto binary_list = binary_methods(std::make_index_sequence<kBinary.size()>{});
        static auto unary_list = unary_methods(std::make_index_sequence<kUnary.size()>{});
        for (PyMethodDef& method : binary_list) install(wrapper_class, method);
        for (PyMethodDef& method : unary_list) install(wrapper_class, method);
      },
      py::arg("wrapper_class"), "Lets C++ run Python's operators on the class.");
}

}  // namespace hyper_parallel::bindings
