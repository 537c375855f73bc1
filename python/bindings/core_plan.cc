#include "core_plan.h"

#include <string>

#include "core_conversions.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/redistribute/traffic.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

Plan plan(const Layout& source, const Layout& target, const IntSequence& shape) {
  return plan_redistribution(source, target, shape_from_python(shape));
}

}  // namespace

void bind_plan(py::module_& core) {
  py::class_<MeshTraffic>(core, "MeshTraffic", "What a redistribution costs the whole mesh, in elements.")
      .def_readonly("total_received", &MeshTraffic::total_received, "Received by all ranks together.")
      .def_readonly("max_received", &MeshTraffic::max_received, "Received by the busiest rank.")
      .def_readonly("lower_bound", &MeshTraffic::lower_bound, "The least that all ranks together must receive.")
      .def_readonly("rounds", &MeshTraffic::rounds, "How many steps communicate.")
      .def("__repr__", [](const MeshTraffic& self) {
        return str_cat("MeshTraffic(total_received=", self.total_received, ", max_received=", self.max_received,
                       ", lower_bound=", self.lower_bound, ", rounds=", self.rounds, ")");
      });
  core.def(
      "plan_text",
      [](const Layout& source, const Layout& target, const IntSequence& shape) {
        return to_string(plan(source, target, shape));
      },
      py::arg("source"), py::arg("target"), py::arg("shape"),
      R"(The plan that takes a tensor from one layout to another, as text: a line for each step.

Args:
    source: How the tensor lies.
    target: How it shall lie.
    shape: Its logical shape.

Raises:
    InvalidArgumentError: A layout does not fit the shape, the target is Partial where the source is not, or the meshes
        hold different ranks.
    OutOfRangeError: A Shard dim lies beyond the shape.)");
  core.def(
      "plan_traffic",
      [](const Layout& source, const Layout& target, const IntSequence& shape) {
        return mesh_traffic(plan(source, target, shape));
      },
      py::arg("source"), py::arg("target"), py::arg("shape"),
      R"(What taking a tensor from one layout to another costs, without doing it.

Args:
    source: How the tensor lies.
    target: How it shall lie.
    shape: Its logical shape.

Raises:
    As ``plan_text``.

Example:
    >>> layout = Layout((2,), ("dp",))
    >>> plan_traffic(layout([Shard(0)]), layout([Shard(1)]), (4, 4)).total_received
    8)");
}

}  // namespace hyper_parallel::bindings
