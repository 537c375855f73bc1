#include "torch_function.h"

#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/operation_table.h"
#include "torch_attributes.h"
#include "torch_guarded.h"
#include "torch_operation.h"
#include "torch_wrapper.h"

namespace hyper_parallel::bindings {
namespace {

struct Metadata {};
struct FromLocal {};
struct Handler {
  py::object callable;
};
using Treatment = std::variant<const Operation*, Metadata, FromLocal, Handler>;

/// A function as torch hands it over. The getter and the setter of an attribute are made anew at each access: they are
/// known by the attribute's descriptor.
struct Key {
  enum class Role : char { kCall, kGet, kSet, kDelete } role;
  const PyObject* object;
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    return std::hash<const void*>{}(key.object) ^ static_cast<size_t>(key.role);
  }
};

struct Entry {
  py::object function;  // kept, so that no other object comes to have its address
  Treatment treatment;
};

/// Filled while the package is imported, read under the GIL.
std::unordered_map<Key, Entry, KeyHash>& entries() {
  static auto* const kEntries = new std::unordered_map<Key, Entry, KeyHash>;
  return *kEntries;
}

/// Its name: a property's is that of its getter.
std::string name_of(py::handle object) {
  if (py::hasattr(object, "fget")) return name_of(object.attr("fget"));
  return py::str(py::hasattr(object, "__name__") ? py::object(object.attr("__name__")) : py::repr(object));
}

Key key_of(py::handle function) {
  if (Py_TYPE(function.ptr()) != &_PyMethodWrapper_Type) return {Key::Role::kCall, function.ptr()};
  const std::string name = name_of(function);
  const Key::Role role = name == "__get__"      ? Key::Role::kGet
                         : name == "__set__"    ? Key::Role::kSet
                         : name == "__delete__" ? Key::Role::kDelete
                                                : Key::Role::kCall;
  if (role == Key::Role::kCall) return {role, function.ptr()};
  return {role, py::object(function.attr("__self__")).ptr()};
}

/// "matmul"; for a getter the attribute's name, for a setter "T = ...".
std::string readable_name(py::handle function) {
  const Key key = key_of(function);
  if (key.role == Key::Role::kCall) return name_of(function);
  const std::string attribute = name_of(function.attr("__self__"));
  return key.role == Key::Role::kGet ? attribute : attribute + " = ...";
}

py::object call_plain(py::handle function, py::handle args, py::handle kwargs) {
  return checked(PyObject_Call(function.ptr(), args.ptr(), kwargs && !kwargs.is_none() ? kwargs.ptr() : nullptr));
}

/// The first DTensor in `items` that is `wanted`; lists, tuples and dicts are looked into. Null if there is none.
template <typename Wanted>
py::handle find_wrapper(py::handle items, const Wanted& wanted) {
  if (!items) return {};
  if (is_wrapper(items)) return wanted(items) ? items : py::handle();
  if (PyTuple_Check(items.ptr()) || PyList_Check(items.ptr())) {
    for (const py::handle item : items) {
      if (const py::handle found = find_wrapper(item, wanted)) return found;
    }
  }
  if (PyDict_Check(items.ptr())) {
    for (const auto& [name, item] : py::reinterpret_borrow<py::dict>(items)) {
      if (const py::handle found = find_wrapper(item, wanted)) return found;
    }
  }
  return {};
}

/// The same among a call's arguments.
template <typename Wanted>
py::handle find_operand(py::handle args, py::handle kwargs, const Wanted& wanted) {
  const py::handle found = find_wrapper(args, wanted);
  return found ? found : find_wrapper(kwargs, wanted);
}

bool is_ragged(py::handle wrapper) { return unwrap_unchecked(wrapper)->layout().is_ragged(); }

py::object run(const Operation& operation, py::handle args, py::handle kwargs) {
  PyObject* const* items = reinterpret_cast<PyTupleObject*>(args.ptr())->ob_item;
  return run_operation(operation, {items, static_cast<size_t>(PyTuple_GET_SIZE(args.ptr()))}, kwargs);
}

py::object answer_from_local(py::handle function, py::handle args, py::handle kwargs) {
  const py::tuple given = py::reinterpret_borrow<py::tuple>(args);
  py::tuple replaced(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const py::object item = given[i];
    replaced[i] = is_wrapper(item) ? py::cast(unwrap_unchecked(item)->local()) : item;
  }
  return call_plain(function, replaced, kwargs);
}

/// What answers functions without an entry on normal layouts; null until the package has named it.
py::object& fallback() {
  static auto* const kFallback = new py::object;
  return *kFallback;
}

/// The fallback's answer, NotImplemented where there is none.
py::object answer_by_fallback(py::handle function, py::handle args, py::handle kwargs) {
  if (!fallback() || find_operand(args, kwargs, is_ragged))
    return py::reinterpret_borrow<py::object>(Py_NotImplemented);
  return fallback()(readable_name(function), function, args, kwargs ? kwargs : py::handle(py::dict()));
}

py::object answer_unknown(py::handle function, py::handle args, py::handle kwargs) {
  const std::string name = readable_name(function);
  const py::handle ragged = find_operand(args, kwargs, is_ragged);
  const py::handle operand = ragged ? ragged : find_operand(args, kwargs, [](py::handle) { return true; });
  HP_CHECK(operand, kType, "operation '", name, "' was given no DTensor");
  py::object answered = answer_by_fallback(function, args, kwargs);
  if (answered.ptr() != Py_NotImplemented) return answered;
  refuse_operation(name, *unwrap_unchecked(operand));
}

/// What a rule does not cover, it refuses before anything is communicated; the fallback may cover it.
py::object run_or_fall_back(const Operation& operation, py::handle function, py::handle args, py::handle kwargs) {
  if (operation.rule == nullptr && operation.composite == nullptr) return run(operation, args, kwargs);
  try {
    return run(operation, args, kwargs);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnimplemented) throw;
    py::object answered;
    try {
      answered = answer_by_fallback(function, args, kwargs);
    } catch (const py::error_already_set& refusal) {
      const py::object refused = py::module_::import("hyper_parallel.errors").attr("UnimplementedError");
      if (!refusal.matches(refused)) throw;
      throw error;  // nearer to what the caller wrote
    }
    if (answered.ptr() == Py_NotImplemented) throw;
    return answered;
  }
}

py::object dispatch(py::handle function, py::handle args, py::handle kwargs) {
  const auto found = entries().find(key_of(function));
  if (found == entries().end()) return answer_unknown(function, args, kwargs);
  return std::visit(
      Overloaded{
          [&](const Operation* operation) { return run_or_fall_back(*operation, function, args, kwargs); },
          [&](const Metadata&) {
            const WithoutTorchFunction guard;
            return call_plain(function, args, kwargs);
          },
          [&](const FromLocal&) { return answer_from_local(function, args, kwargs); },
          [&](const Handler& handler) {
            return handler.callable(function, args, kwargs ? kwargs : py::handle(py::dict()));
          },
      },
      found->second.treatment);
}

/// Whether every class that takes part is torch's or ours; another tensor class may know better what to do with us.
bool knows_all(py::handle types) {
  for (const py::handle type : types) {
    HP_CHECK(PyType_Check(type.ptr()), kType, "__torch_function__: types holds ", std::string(py::repr(type)),
             " but must hold classes");
    auto* const class_object = reinterpret_cast<PyTypeObject*>(type.ptr());
    if (!THPVariable_CheckTypeExact(class_object) && !is_wrapper_class(type)) return false;
  }
  return true;
}

/// The protocol's arguments: (function, types, args) and kwargs, a dict, None or missing.
py::object answer(std::span<PyObject* const> given) {
  HP_CHECK(given.size() == 3 || given.size() == 4, kType, "__torch_function__ takes func, types, args and kwargs, not ",
           given.size(), " arguments");
  const py::handle kwargs = given.size() == 4 && given[3] != Py_None ? py::handle(given[3]) : py::handle();
  HP_CHECK(PyCallable_Check(given[0]) != 0, kType, "__torch_function__: func must be callable");
  HP_CHECK(PyTuple_Check(given[2]), kType, "__torch_function__: args must be a tuple");
  HP_CHECK(!kwargs || PyDict_Check(kwargs.ptr()), kType, "__torch_function__: kwargs must be a dict");
  if (!knows_all(given[1])) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
  return dispatch(given[0], given[2], kwargs);
}

PyObject* torch_function(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&] { return answer({arguments, static_cast<size_t>(count)}); });
}

PyMethodDef torch_function_definition = {
    "torch_function", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(torch_function)), METH_FASTCALL,
    "torch_function(func, types, args, kwargs=None)\n\nRuns a function of torch on DTensors."};

/// A later registration replaces an earlier one: an import that failed halfway may be tried again.
void add(py::handle function, Key::Role role, Treatment treatment) {
  entries().insert_or_assign({role, function.ptr()},
                             Entry{py::reinterpret_borrow<py::object>(function), std::move(treatment)});
}

Key::Role role_of(const std::string& role) {
  if (role == "call") return Key::Role::kCall;
  if (role == "get") return Key::Role::kGet;
  if (role == "set") return Key::Role::kSet;
  HP_CHECK(role == "delete", kInvalidArgument, "role '", role, "' must be call, get, set or delete");
  return Key::Role::kDelete;
}

const Operation& checked_operation(const std::string& name) {
  const Operation* operation = find_operation(name);
  HP_CHECK(operation != nullptr, kInvalidArgument, "there is no operation '", name, "'");
  return *operation;
}

}  // namespace

void bind_torch_function(py::module_& module) {
  module.add_object("torch_function", checked(PyCFunction_New(&torch_function_definition, nullptr)));
  module.def("set_wrapper_class", &set_wrapper_class, py::arg("wrapper_class"),
             "Names the class that wrappers are instances of.");
  module.def(
      "register_operation",
      [](const py::object& function, const std::string& operation) {
        add(function, Key::Role::kCall, &checked_operation(operation));
      },
      py::arg("function"), py::arg("operation"), "Makes a function of torch run an elementwise operation.");
  module.def(
      "register_metadata",
      [](const py::object& function, const std::string& role) { add(function, role_of(role), Metadata{}); },
      py::arg("function"), py::arg("role") = "call", "Lets a function of torch be answered by the wrapper.");
  module.def(
      "register_from_local",
      [](const py::object& function, const std::string& role) { add(function, role_of(role), FromLocal{}); },
      py::arg("function"), py::arg("role") = "call", "Lets a function of torch be answered by the local tensor.");
  module.def(
      "register_handler",
      [](const py::object& function, const py::function& handler, const std::string& role) {
        add(function, role_of(role), Handler{handler});
      },
      py::arg("function"), py::arg("handler"), py::arg("role") = "call",
      "Lets handler(function, args, kwargs) answer a function of torch.");
  module.def(
      "register_fallback", [](const py::function& callable) { fallback() = callable; }, py::arg("callable"),
      "Lets callable(name, function, args, kwargs) answer every function of torch that has no entry where no argument "
      "is ragged; NotImplemented refuses.");
  module.def("operation_names", &operation_names, "All elementwise operations, sorted.");
  module.def(
      "call",
      [](const std::string& operation, const py::args& args, const py::kwargs& kwargs) {
        return run(checked_operation(operation), args, kwargs);
      },
      py::arg("operation"), "Runs an elementwise operation by name.");
}

}  // namespace hyper_parallel::bindings
