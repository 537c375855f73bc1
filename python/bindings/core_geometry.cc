#include "core_geometry.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/geometry/distribution.h"
#include "hyper_parallel/geometry/region.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

/// A position of the layout's mesh and what is owned there.
struct Owner {
  Distribution distribution;
  Dims coordinate;

  Region region() const { return distribution.owned(coordinate); }
};

Owner owner_at(const Layout& layout, const IntSequence& shape, const IntArgument& position) {
  const DeviceMesh& mesh = layout.mesh();
  const int64_t index = integer_from_python(position, "position");
  HP_CHECK(index >= 0 && index < mesh.size(), kOutOfRange, "position ", index, " is out of range for a mesh of ",
           mesh.size(), " ranks");
  return {Distribution(layout, shape_from_python(shape)), mesh.coordinate_at(index)};
}

IntTuple to_tuple(const Dims& dims) { return IntTuple(integers_to_python(std::span(dims.data(), dims.size()))); }

IntTuple local_shape(const Layout& layout, const IntSequence& shape, const IntArgument& position) {
  const Owner owner = owner_at(layout, shape, position);
  return to_tuple(owner.distribution.local_shape(owner.coordinate));
}

std::vector<std::pair<IntTuple, IntTuple>> owned_boxes(const Layout& layout, const IntSequence& shape,
                                                       const IntArgument& position) {
  std::vector<std::pair<IntTuple, IntTuple>> boxes;
  for (const Box& box : region_boxes(owner_at(layout, shape, position).region())) {
    boxes.emplace_back(to_tuple(box.offsets), to_tuple(box.sizes));
  }
  return boxes;
}

std::optional<std::pair<int64_t, int64_t>> owned_interval(const Layout& layout, const IntSequence& shape,
                                                          const IntArgument& position) {
  const Owner owner = owner_at(layout, shape, position);
  const Region region = owner.region();
  // A ragged share is a run of the whole tensor, with a place also where it is empty.
  const auto run = layout.is_ragged() ? std::optional(region.flat) : flat_run(region, owner.distribution.shape());
  if (!run) return std::nullopt;
  return std::pair(run->begin, run->end);
}

}  // namespace

void bind_geometry(py::module_& core) {
  core.def("local_shape", &local_shape, py::arg("layout"), py::arg("shape"), py::arg("position"),
           R"(The shape of the local tensor at a position of the layout's mesh.

Args:
    layout: How the tensor lies.
    shape: Its logical shape.
    position: An index into the mesh's rank list.

Returns:
    The sizes of the rank's box, or ``(numel,)`` for a ragged layout.

Raises:
    OutOfRangeError: The mesh has fewer ranks, or a Shard dim lies beyond the shape.
    InvalidArgumentError: A tensor of ``shape`` cannot lie so.

Example:
    >>> layout = Layout((4,), ("dp",))([Shard(0)])
    >>> [local_shape(layout, (5, 3), position) for position in range(4)]
    [(2, 3), (2, 3), (1, 3), (0, 3)])");
  core.def("owned_boxes", &owned_boxes, py::arg("layout"), py::arg("shape"), py::arg("position"),
           R"(What is owned at a position of the layout's mesh, as disjoint N-D boxes in the order of local storage.

Args:
    layout: How the tensor lies.
    shape: Its logical shape.
    position: An index into the mesh's rank list.

Returns:
    ``(offsets, sizes)`` of each box: at most ``2 * ndim - 1``, none where nothing is owned.

Raises:
    As ``local_shape``.

Example:
    >>> layout = Layout((2,), ("dp",))([RaggedShard((0, 1), (1, 2))])
    >>> owned_boxes(layout, (3, 2), 1)
    [((1, 0), (2, 2))])");
  core.def("owned_interval", &owned_interval, py::arg("layout"), py::arg("shape"), py::arg("position"),
           R"(The run ``[begin, end)`` of the row-major tensor that is owned at a position of the layout's mesh.

Args:
    layout: How the tensor lies.
    shape: Its logical shape.
    position: An index into the mesh's rank list.

Returns:
    ``(begin, end)``, or None where what is owned is not one run: a box that cuts an inner dim.

Raises:
    As ``local_shape``.

Example:
    >>> layout = Layout((2,), ("dp",))([RaggedShard((0, 1), (1, 2))])
    >>> [owned_interval(layout, (6, 4, 8), position) for position in range(2)]
    [(0, 64), (64, 192)])");
}

}  // namespace hyper_parallel::bindings
