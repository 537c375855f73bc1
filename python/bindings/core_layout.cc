#include "core_layout.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/layout/layout_notation.h"
#include "hyper_parallel/layout/tensor_map.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

std::string entry_name(const char* argument, size_t index) {
  return std::string(argument) + "[" + std::to_string(index) + "]";
}

/// One entry per tensor dim: a single item, or a tuple or list of them.
template <typename Entry, typename One, typename Several>
std::vector<Entry> entries_from_python(py::handle entries, const char* argument, const One& one,
                                       const Several& several) {
  HP_CHECK(py::isinstance<py::tuple>(entries) || py::isinstance<py::list>(entries), kType, argument, " is ",
           repr_text(entries), " but must be a tuple with an entry for each tensor dim");
  std::vector<Entry> values;
  for (const py::handle entry : entries) {
    const std::string name = entry_name(argument, values.size());
    const bool is_several = py::isinstance<py::tuple>(entry) || py::isinstance<py::list>(entry);
    values.push_back(is_several ? Entry(several(entry, name)) : Entry(one(entry, name)));
  }
  return values;
}

Layout from_tensor_map(const DeviceMesh& mesh, const TensorMapArgument& map) {
  return layout_from_tensor_map(
      mesh, entries_from_python<TensorMapEntry>(map, "tensor_map", integer_from_python, integers_from_python));
}

Layout from_aliases(const DeviceMesh& mesh, const AliasesArgument& aliases) {
  return layout_from_aliases(
      mesh, entries_from_python<AliasEntry>(aliases, "layout aliases", text_from_python, texts_from_python));
}

TensorMapArgument tensor_map(const Layout& layout, const IntArgument& dim) {
  const TensorMap map = placement_to_tensor_map(layout, integer_from_python(dim, "dim"));
  py::tuple entries(map.entries.size());
  for (size_t i = 0; i < map.entries.size(); ++i) {
    const std::vector<int64_t>& axes = map.entries[i];
    if (axes.size() > 1) {
      entries[i] = integers_to_python(axes);
    } else {
      entries[i] = py::int_(axes.empty() ? -1 : axes.front());
    }
  }
  return TensorMapArgument(entries);
}

py::typing::Tuple<std::optional<py::str>, py::ellipsis> partial(const Layout& layout) {
  py::tuple ops(layout.placements().size());
  for (size_t i = 0; i < layout.placements().size(); ++i) {
    const auto* pending = std::get_if<Partial>(&layout.placements()[i]);
    ops[i] = pending == nullptr ? py::object(py::none()) : py::object(py::str(std::string(to_string(pending->op))));
  }
  return ops;
}

std::optional<std::pair<int64_t, RaggedShardObject>> ragged_shard(const Layout& layout) {
  if (!layout.is_ragged()) return std::nullopt;
  return std::pair(layout.ragged_shard()->mesh_dim, RaggedShardObject{layout.ragged_shard()->placement});
}

}  // namespace

void bind_layout(py::module_& core) {
  py::class_<Layout>(core, "Layout", R"(A mesh and one placement per mesh dim: the value.

Users take ``hyper_parallel.Layout``, which adds the ways to write one.)")
      .def(py::init([](const DeviceMesh& mesh, const PlacementSequence& placements) {
             return Layout(mesh, placements_from_python(placements));
           }),
           py::arg("mesh"), py::arg("placements"))
      .def(py::init<const Layout&>(), py::arg("layout"))
      .def_static("from_tensor_map", &from_tensor_map, py::arg("mesh"), py::arg("tensor_map"),
                  "The layout of a tensor map: per tensor dim a mesh axis, counted from the innermost, -1 or a tuple.")
      .def_static("from_aliases", &from_aliases, py::arg("mesh"), py::arg("aliases"),
                  "The layout of alias names: per tensor dim the name of a mesh dim, \"None\" or a tuple of names.")
      .def_property_readonly("core_mesh", &Layout::mesh, "The mesh's value.")
      .def_property_readonly(
          "placements", [](const Layout& self) { return PlacementTuple(placements_to_python(self.placements())); },
          "One placement per mesh dim, as they were given.")
      .def_property_readonly(
          "normal_placements",
          [](const Layout& self) { return PlacementTuple(placements_to_python(self.normal_placements())); },
          "The placements with ``Replicate()`` in place of a RaggedShard.")
      .def_property_readonly("partial", &partial, "Per mesh dim the pending reduction, \"sum\" for instance, or None.")
      .def_property_readonly("ragged", &ragged_shard, "The mesh dim of the RaggedShard and the placement, or None.")
      .def_property_readonly("is_ragged", &Layout::is_ragged, "Whether one of the placements is a RaggedShard.")
      .def("placement_to_tensor_map", &tensor_map, py::arg("dim"),
           R"(The tensor map of a tensor of ``dim`` dims.

One entry per tensor dim: -1 where no mesh dim splits it, the mesh axis that does, counted from the innermost mesh dim
(mesh dim i of n is axis ``n - 1 - i``), or a tuple of axes, outermost first. Works on ``normal_placements``.

Args:
    dim: The number of the tensor's dims.

Raises:
    OutOfRangeError: A Shard dim lies outside ``[-dim, dim)``.
    InvalidArgumentError: ``dim`` is negative or smaller than the number of ragged dims.

Example:
    >>> layout = Layout((2, 2), ("dp", "tp"))
    >>> layout([Shard(0), Shard(1)]).placement_to_tensor_map(3)
    (1, 0, -1)
    >>> layout([Shard(0), Shard(0)]).placement_to_tensor_map(dim=2)
    ((1, 0), -1))")
      .def(
          "folded",
          [](const Layout& self, const IntArgument& ndim) { return self.folded(integer_from_python(ndim, "ndim")); },
          py::arg("ndim"), "The layout for a tensor of ``ndim`` dims: no Shard dim is negative.")
      .def(
          "check_shape",
          [](const Layout& self, const IntSequence& shape) { check_shape(self, shape_from_python(shape)); },
          py::arg("shape"), R"(Raises unless a tensor of ``shape`` can lie so.

Args:
    shape: The logical shape.

Raises:
    InvalidArgumentError: A negative size, ragged dims beyond the tensor's, or prefix cells that the units' sum does not
        divide.
    OutOfRangeError: A Shard dim beyond the tensor's dims.)")
      .def(
          "__eq__", [](const Layout& a, const Layout& b) { return a == b; }, py::is_operator())
      .def("__hash__", &Layout::hash)
      .def("__repr__", [](const Layout& self) { return to_string(self); });
}

}  // namespace hyper_parallel::bindings
