#include "core_conversions.h"

#include <pybind11/gil_safe_call_once.h>

#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

constexpr size_t kLongestRepr = 200;  // characters of a value in an error message

[[noreturn]] void raise_type(std::string_view argument, py::handle value, std::string_view rule) {
  raise(ErrorCode::kType, argument, " is ", repr_text(value), " but must be ", rule);
}

/// The value of an int that is no bool; nothing for any other object. `name()` is the argument's, made for errors only.
template <typename Name>
std::optional<int64_t> try_integer(py::handle value, const Name& name) {
  if (PyBool_Check(value.ptr()) != 0 || PyLong_Check(value.ptr()) == 0) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  HP_CHECK(overflow == 0, kInvalidArgument, name(), " is ", repr_text(value), ", which does not fit in int64");
  return number;
}

std::string entry_name(std::string_view argument, Py_ssize_t index) { return str_cat(argument, "[", index, "]"); }

/// Calls `visit(index, entry)` for each entry of a tuple or list.
template <typename Visit>
void for_each_entry(py::handle sequence, const Visit& visit) {
  PyObject* const object = sequence.ptr();
  const bool is_tuple = PyTuple_Check(object) != 0;
  // The size is read anew each time: an entry's own code may shorten a list.
  for (Py_ssize_t i = 0; i < (is_tuple ? PyTuple_GET_SIZE(object) : PyList_GET_SIZE(object)); ++i) {
    visit(i, py::handle(is_tuple ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i)));
  }
}

bool is_tuple_or_list(py::handle value) { return PyTuple_Check(value.ptr()) != 0 || PyList_Check(value.ptr()) != 0; }

[[noreturn]] void raise_placement(py::handle entry, std::string_view argument, Py_ssize_t index) {
  const std::string module = py::str(py::type::handle_of(entry).attr("__module__"));
  HP_CHECK(!module.starts_with("torch."), kType, entry_name(argument, index), " is ", repr_text(entry), " of ", module,
           " but must be a placement of hyper_parallel: pass hyper_parallel's class of the same name");
  raise_type(entry_name(argument, index), entry, "a placement: Replicate, Shard, Partial or RaggedShard");
}

/// The type record of `PlacementObject`: looked up once, as a caster looks it up for each entry.
const py::detail::type_info* placement_type() {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<const py::detail::type_info*> storage;
  return storage.call_once_and_store_result([] { return py::detail::get_type_info(typeid(PlacementObject)); })
      .get_stored();
}

/// The class `name` of the Python module `module`, found when first needed.
template <typename Tag>
const py::object& python_class(const char* module, const char* name) {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<py::object> storage;
  return storage.call_once_and_store_result([&] { return py::module_::import(module).attr(name); }).get_stored();
}

}  // namespace

std::string repr_text(py::handle value) {
  std::string text = py::repr(value);
  if (text.size() <= kLongestRepr) return text;
  size_t end = kLongestRepr;
  while ((static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // never within a UTF-8 character
  return text.substr(0, end) + "..";
}

int64_t integer_from_python(py::handle value, std::string_view argument) {
  if (const auto number = try_integer(value, [&] { return argument; })) return *number;
  raise_type(argument, value, "an int");
}

std::string text_from_python(py::handle value, std::string_view argument) {
  if (PyUnicode_Check(value.ptr()) == 0) raise_type(argument, value, "a str");
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    raise(ErrorCode::kInvalidArgument, argument, " is ", repr_text(value), ", which is no valid Unicode");
  }
  return {text, static_cast<size_t>(size)};
}

std::vector<int64_t> integers_from_python(py::handle values, std::string_view argument) {
  if (PyRange_Check(values.ptr()) != 0)
    return integers_from_python(py::list(py::reinterpret_borrow<py::object>(values)), argument);
  if (!is_tuple_or_list(values)) raise_type(argument, values, "a tuple of ints");
  std::vector<int64_t> integers;
  integers.reserve(py::len(values));
  for_each_entry(values, [&](Py_ssize_t index, py::handle entry) {
    const auto number = try_integer(entry, [&] { return entry_name(argument, index); });
    if (!number) raise_type(entry_name(argument, index), entry, "an int");
    integers.push_back(*number);
  });
  return integers;
}

std::vector<std::string> texts_from_python(py::handle values, std::string_view argument) {
  if (!is_tuple_or_list(values)) raise_type(argument, values, "a tuple of str");
  std::vector<std::string> texts;
  for_each_entry(values, [&](Py_ssize_t index, py::handle entry) {
    texts.push_back(text_from_python(entry, entry_name(argument, index)));
  });
  return texts;
}

std::vector<int64_t> shape_from_python(py::handle shape, std::string_view argument) {
  std::vector<int64_t> sizes = integers_from_python(shape, argument);
  check_global_shape(sizes);
  return sizes;
}

std::vector<Placement> placements_from_python(py::handle placements, std::string_view argument) {
  if (!is_tuple_or_list(placements))
    raise_type(argument, placements, "a tuple or list with a placement for each mesh dim");
  std::vector<Placement> values;
  values.reserve(py::len(placements));
  for_each_entry(placements, [&](Py_ssize_t index, py::handle entry) {
    py::detail::type_caster_generic caster(placement_type());
    if (entry.is_none() || !caster.load(entry, /*convert=*/false)) raise_placement(entry, argument, index);
    values.push_back(static_cast<const PlacementObject*>(caster.value)->value);
  });
  return values;
}

int64_t mesh_dim_from_python(const DeviceMesh& mesh, py::handle dim) {
  if (PyUnicode_Check(dim.ptr()) != 0) return mesh.dim_index(text_from_python(dim, "mesh dim"));
  const auto number = try_integer(dim, [] { return "mesh dim"; });
  if (!number) raise_type("mesh dim", dim, "a name or an int");
  HP_CHECK(*number >= -mesh.ndim() && *number < mesh.ndim(), kOutOfRange, "mesh dim ", *number,
           " is out of range for a mesh of ", mesh.ndim(), " dims");
  return *number < 0 ? *number + mesh.ndim() : *number;
}

py::object placement_to_python(const Placement& placement) {
  return std::visit(Overloaded{
                        [&](const Replicate&) { return py::cast(ReplicateObject{placement}); },
                        [&](const Shard&) { return py::cast(ShardObject{placement}); },
                        [&](const Partial&) { return py::cast(PartialObject{placement}); },
                        [&](const RaggedShard&) { return py::cast(RaggedShardObject{placement}); },
                    },
                    placement);
}

py::tuple placements_to_python(const std::vector<Placement>& placements) {
  py::tuple tuple(placements.size());
  for (size_t i = 0; i < placements.size(); ++i) tuple[i] = placement_to_python(placements[i]);
  return tuple;
}

py::tuple integers_to_python(std::span<const int64_t> values) {
  py::tuple tuple(values.size());
  for (size_t i = 0; i < values.size(); ++i) tuple[i] = py::int_(values[i]);
  return tuple;
}

py::tuple texts_to_python(const std::vector<std::string>& values) {
  py::tuple tuple(values.size());
  for (size_t i = 0; i < values.size(); ++i) tuple[i] = py::str(values[i]);
  return tuple;
}

py::object mesh_to_python(const DeviceMesh& mesh) {
  return python_class<DeviceMesh>("hyper_parallel.device_mesh", "DeviceMesh").attr("_from_core")(mesh);
}

py::object layout_to_python(const Layout& layout, py::handle mesh) {
  return python_class<Layout>("hyper_parallel.layout", "Layout").attr("_from_core")(layout, mesh);
}

}  // namespace hyper_parallel::bindings
