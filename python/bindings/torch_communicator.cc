#include "torch_communicator.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <utility>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "torch_guarded.h"
#include "torch_random.h"

namespace hyper_parallel::bindings {
namespace {

/// The process group that torch.distributed uses by default; raises FailedPreconditionError without one.
c10::intrusive_ptr<c10d::ProcessGroup> default_group() {
  const py::gil_scoped_acquire gil;
  auto group = py::module_::import("hyper_parallel.platform")
                   .attr("world_group")()
                   .cast<c10::intrusive_ptr<c10d::ProcessGroup>>();
  random_state_goes_under(group);
  return group;
}

/// torch.distributed's default process group, null without one.
const c10d::ProcessGroup* world_group() {
  // The class lives as long as torch; its attribute is what init_process_group and destroy_process_group set.
  static PyObject* const kGroup = py::object(py::module_::import("torch.distributed").attr("group")).release().ptr();
  const py::object world = checked(PyObject_GetAttrString(kGroup, "WORLD"));
  return world.is_none() ? nullptr : world.cast<const c10d::ProcessGroup*>();
}

}  // namespace

MeshCommunicator communicator_of(py::handle mesh, std::string_view what) {
  static PyObject* const kAttribute = PyUnicode_InternFromString("_communicator");
  HP_CHECK(py::isinstance<DeviceMesh>(mesh), kType, what, " must be a hyper_parallel.DeviceMesh, not ",
           repr_text(mesh));
  const py::object found = checked(PyObject_GetAttr(mesh.ptr(), kAttribute));
  if (!found.is_none()) {
    const MeshCommunicator& known = found.cast<const MeshCommunicator&>();
    if (known.talks_over(world_group())) return known;
  }
  return py::module_::import("hyper_parallel._communicator").attr("attach")(mesh).cast<MeshCommunicator>();
}

py::object mesh_of(const DeviceMesh& mesh) {
  return py::module_::import("hyper_parallel._communicator").attr("mesh_of")(mesh);
}

MeshCommunicator deferred_communicator(int64_t rank, const DeviceMesh& mesh) {
  return MeshCommunicator::deferred(&default_group, rank, mesh, process_random_state());
}

void bind_communicator(py::module_& module) {
  py::class_<MeshCommunicator>(module, "Communicator", "A mesh whose ranks can talk to each other.")
      .def(py::init([](const c10::intrusive_ptr<c10d::ProcessGroup>& group, const DeviceMesh& mesh) {
             random_state_goes_under(group);
             return MeshCommunicator(group, mesh, {}, process_random_state());
           }),
           py::arg("group").none(false), py::arg("mesh"),
           "Args:\n    group: A process group that numbers ranks as the job does and holds all of the mesh.\n"
           "    mesh: The mesh.\n\nRaises:\n    InvalidArgumentError: The mesh has a rank outside the group.")
      .def("with_mesh", &MeshCommunicator::with_mesh, py::arg("mesh"),
           "The same group and plans for another mesh; raises InvalidArgumentError if it has a rank outside the group.")
      .def_property_readonly("rank", &MeshCommunicator::rank, "This process's rank in the job.")
      .def_property_readonly("is_member", &MeshCommunicator::is_member, "Whether this process lies in the mesh.");
}

}  // namespace hyper_parallel::bindings
