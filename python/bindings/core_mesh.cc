#include "core_mesh.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/mesh/device_mesh.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

DeviceMesh make_mesh(const IntSequence& shape, const std::optional<TextSequence>& names,
                     const std::optional<IntSequence>& ranks) {
  std::vector<int64_t> sizes = integers_from_python(shape, "mesh_shape");
  std::vector<std::string> dim_names;
  if (names) {
    dim_names = texts_from_python(*names, "mesh_dim_names");
    HP_CHECK(!dim_names.empty(), kInvalidArgument, "mesh_dim_names is () but must name each mesh dim, or be None");
  }
  if (!ranks) return DeviceMesh(std::move(sizes), std::move(dim_names));
  return DeviceMesh(std::move(sizes), std::move(dim_names), integers_from_python(*ranks, "rank_list"));
}

int64_t mesh_size(const DeviceMesh& mesh, const std::optional<MeshDim>& dim) {
  return dim ? mesh.size(mesh_dim_from_python(mesh, *dim)) : mesh.size();
}

std::optional<IntTuple> coordinate_of(const DeviceMesh& mesh, const IntArgument& rank) {
  const auto coordinate = mesh.coordinate(integer_from_python(rank, "rank"));
  if (!coordinate) return std::nullopt;
  return IntTuple(integers_to_python(std::span(coordinate->data(), coordinate->size())));
}

IntTuple group_of(const DeviceMesh& mesh, const MeshDim& dim, const IntArgument& rank) {
  return IntTuple(integers_to_python(mesh.group(mesh_dim_from_python(mesh, dim), integer_from_python(rank, "rank"))));
}

DeviceMesh sub_mesh_of(const DeviceMesh& mesh, const TextSequence& names, const IntArgument& rank) {
  return mesh.sub_mesh(texts_from_python(names, "mesh dims"), integer_from_python(rank, "rank"));
}

DeviceMesh flattened(const DeviceMesh& mesh, const std::optional<TextArgument>& name) {
  if (!name) return mesh.flatten();
  std::string text = text_from_python(*name, "name");
  HP_CHECK(!text.empty(), kInvalidArgument, "name is '' but must be made of letters, digits and underscores");
  return mesh.flatten(std::move(text));
}

}  // namespace

void bind_mesh(py::module_& core) {
  py::class_<DeviceMesh>(core, "DeviceMesh", R"(Ranks laid out on a named grid: the value without this process.

Users take ``hyper_parallel.DeviceMesh``, which adds the questions that depend on this process's rank.)")
      // Before the other, which takes any object and says what is wrong with it.
      .def(py::init<const DeviceMesh&>(), py::arg("mesh"))
      .def(py::init(&make_mesh), py::arg("mesh_shape"), py::arg("mesh_dim_names") = py::none(),
           py::arg("rank_list") = py::none())
      .def_property_readonly(
          "shape", [](const DeviceMesh& self) { return IntTuple(integers_to_python(self.shape())); },
          "The number of ranks along each mesh dim.")
      .def_property_readonly(
          "mesh_shape", [](const DeviceMesh& self) { return IntTuple(integers_to_python(self.shape())); },
          "The same as ``shape``.")
      .def_property_readonly("ndim", &DeviceMesh::ndim, "The number of mesh dims.")
      .def_property_readonly(
          "mesh_dim_names", [](const DeviceMesh& self) { return TextTuple(texts_to_python(self.names())); },
          "The name of each mesh dim.")
      .def_property_readonly(
          "rank_list", [](const DeviceMesh& self) { return IntTuple(integers_to_python(self.ranks())); },
          "The ranks, row-major over the mesh.")
      .def("size", &mesh_size, py::arg("dim") = py::none(),
           R"(How many ranks lie along ``dim``, or in the whole mesh.

Args:
    dim: The name or the number of a mesh dim; a negative number counts from the last.

Raises:
    InvalidArgumentError: No mesh dim has this name.
    OutOfRangeError: The mesh has fewer dims.

Example:
    >>> mesh = DeviceMesh((2, 3), ("dp", "tp"))
    >>> mesh.size(), mesh.size("tp"), mesh.size(0)
    (6, 3, 2))")
      .def(
          "dim_index", [](const DeviceMesh& self, const MeshDim& dim) { return mesh_dim_from_python(self, dim); },
          py::arg("dim"), "The number of the mesh dim with this name or number, in [0, ndim); raises as ``size``.")
      .def(
          "contains",
          [](const DeviceMesh& self, const IntArgument& rank) {
            return self.contains(integer_from_python(rank, "rank"));
          },
          py::arg("rank"), "Whether the mesh holds the rank.")
      .def("coordinate", &coordinate_of, py::arg("rank"),
           "The rank's position along each mesh dim, None if the mesh does not hold it.")
      .def("group", &group_of, py::arg("dim"), py::arg("rank"),
           "The ranks that differ from ``rank`` along ``dim`` alone, in mesh order. Raises InvalidArgumentError if the "
           "mesh does not hold the rank, and as ``size`` for the dim.")
      .def("sub_mesh", &sub_mesh_of, py::arg("names"), py::arg("rank"),
           "The mesh of the named dims, in the order given, through ``rank``.")
      .def("flattened", &flattened, py::arg("name") = py::none(),
           "The mesh of one dim over the same ranks; without a name the names are joined by '_'.")
      .def("same_ranks", &DeviceMesh::same_ranks, py::arg("other"),
           "Whether both meshes hold the same ranks, in whatever order and shape.")
      .def(
          "__eq__", [](const DeviceMesh& a, const DeviceMesh& b) { return a == b; }, py::is_operator())
      .def("__hash__", &DeviceMesh::hash)
      .def("__repr__", [](const DeviceMesh& self) { return to_string(self); });
}

}  // namespace hyper_parallel::bindings
