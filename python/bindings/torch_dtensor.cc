#include "torch_dtensor.h"

#include <optional>
#include <utility>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/dtensor.h"
#include "hyper_parallel/torch/gradient_frame.h"
#include "hyper_parallel/torch/local_shape.h"
#include "torch_communicator.h"
#include "torch_guarded.h"
#include "torch_signatures.h"
#include "torch_wrapper.h"

namespace hyper_parallel::bindings {
namespace {

const at::Tensor& plain_tensor(py::handle object, std::string_view what) {
  HP_CHECK(!is_wrapper(object), kType, what, " is a DTensor but must be a plain tensor; use redistribute()");
  HP_CHECK(THPVariable_Check(object.ptr()), kType, what, " must be a torch.Tensor, not ", repr_text(object));
  HP_CHECK(!THPVariable_Unpack(object.ptr()).unsafeGetTensorImpl()->is_python_dispatch(), kType, what, " is a ",
           Py_TYPE(object.ptr())->tp_name, ", a tensor with a dispatch of its own, but must be a plain torch.Tensor");
  return THPVariable_Unpack(object.ptr());
}

std::optional<std::vector<Placement>> optional_placements(py::handle placements, std::string_view argument) {
  if (placements.is_none()) return std::nullopt;
  return placements_from_python(placements, argument);
}

DTensorObject from_local(const TensorObject& local, const MeshObject& mesh, const PlacementSequence& placements,
                         const OrNone<IntSequence>& shape) {
  const at::Tensor& tensor = plain_tensor(local, "from_local: local_tensor");
  const MeshCommunicator communicator = communicator_of(mesh, "from_local: device_mesh");
  std::vector<Placement> checked = placements_from_python(placements);
  std::optional<std::vector<int64_t>> global;
  if (!shape.is_none()) global = shape_from_python(shape);
  return wrap(without_gil([&] { return DTensor::from_local(tensor, communicator, std::move(checked), global); }));
}

DTensorObject distribute_tensor(const TensorObject& tensor, const MeshObject& mesh, const PlacementSequence& placements,
                                const OrNone<IntArgument>& source) {
  const at::Tensor& whole = plain_tensor(tensor, "distribute_tensor: tensor");
  const MeshCommunicator communicator = communicator_of(mesh, "distribute_tensor: device_mesh");
  std::vector<Placement> checked = placements_from_python(placements);
  std::optional<int64_t> source_rank;
  if (!source.is_none()) source_rank = integer_from_python(source, "src_data_rank");
  return wrap(without_gil([&] { return distribute(whole, communicator, std::move(checked), source_rank); }));
}

DTensorObject redistribute(const DTensorObject& tensor, const OrNone<MeshObject>& mesh,
                           const PlacementSequence& placements) {
  const auto source = unwrap(tensor, "redistribute: tensor");
  std::vector<Placement> target = placements_from_python(placements);
  const DeviceMesh onto =
      mesh.is_none() ? source->layout().mesh() : communicator_of(mesh, "redistribute: device_mesh").mesh();
  // An equal layout is the very same tensor.
  if (target == source->placements() && onto == source->layout().mesh()) {
    return tensor;
  }
  DTensor made = without_gil([&] { return source->redistribute(onto, std::move(target)); });
  if (made.layout() == source->layout()) return tensor;
  return wrap(std::move(made));
}

at::Tensor to_local(const DTensorObject& tensor, const OrNone<PlacementSequence>& grad_placements) {
  const auto source = unwrap(tensor, "to_local: tensor");
  const auto gradient = optional_placements(grad_placements, "grad_placements");
  const py::gil_scoped_release no_gil;
  return source->to_local(gradient);
}

at::Tensor full_tensor(const DTensorObject& tensor, const OrNone<PlacementSequence>& grad_placements) {
  const auto source = unwrap(tensor, "full_tensor: tensor");
  const auto gradient = optional_placements(grad_placements, "grad_placements");
  const py::gil_scoped_release no_gil;
  return source->full_tensor(gradient);
}

NumberObject item(const DTensorObject& tensor) {
  const auto source = unwrap(tensor, "item: tensor");
  return py::cast(without_gil([&] { return source->item(); }));
}

DTensorObject row(const DTensorObject& tensor, const IntArgument& index) {
  const auto source = unwrap(tensor, "x[i]: x");
  const int64_t number = integer_from_python(index, "x[i]: i");
  py::object wrapped = wrap(without_gil([&] { return (*source)[number]; }));
  set_base(wrapped, tensor);
  return wrapped;
}

/// `local` as another tensor of the same layout and shape.
DTensorObject wrap_like(const DTensorObject& tensor, const at::Tensor& local) {
  const auto like = unwrap(tensor, "wrap_like: tensor");
  HP_CHECK(local.sizes() == like->local().sizes(), kInvalidArgument, "wrap_like: a local tensor of shape ",
           tuple_text(local.sizes()), " but this rank's part has ", tuple_text(like->local().sizes()));
  return wrap(DTensor::unchecked(local, like->mesh(), like->layout(), like->shape()));
}

/// `local` as the gradient of `tensor`.
DTensorObject wrap_gradient(const DTensorObject& tensor, const at::Tensor& local) {
  return wrap(GradientFrame(*unwrap(tensor, "wrap_gradient: tensor")).dtensor_of(local));
}

/// The local tensor of a gradient of `tensor`, laid out as its gradients are.
at::Tensor gradient_local(const DTensorObject& tensor, const DTensorObject& gradient) {
  const GradientFrame frame(*unwrap(tensor, "tensor"));
  const auto given = unwrap(gradient, "the gradient of a DTensor");
  const py::gil_scoped_release no_gil;
  return frame.local_of(*given);
}

/// A DTensor as it was pickled: by `rank`, perhaps in a job that is over.
DTensorObject restore(const at::Tensor& local, const DeviceMesh& mesh, const std::string& placements,
                      const IntSequence& shape, int64_t rank) {
  std::vector<int64_t> global = shape_from_python(shape);
  const Layout layout = Layout(mesh, parse_placements(placements)).folded(static_cast<int64_t>(global.size()));
  check_shape(layout, global);
  check_local(local, layout, global, rank);
  return wrap(DTensor::unchecked(local, deferred_communicator(rank, mesh), layout, std::move(global)));
}

void bind_makers(py::module_& module) {
  module.def("from_local", &from_local, py::arg("local_tensor"), py::arg("device_mesh"), py::arg("placements"),
             py::arg("shape") = py::none(), "Wraps this rank's part of a tensor of logical shape `shape`.");
  module.def("distribute_tensor", &distribute_tensor, py::arg("tensor"), py::arg("device_mesh"), py::arg("placements"),
             py::arg("src_data_rank") = py::none(), "Spreads a whole tensor over the mesh.");
  module.def("restore", &restore, py::arg("local"), py::arg("mesh"), py::arg("placements"), py::arg("shape"),
             py::arg("rank"), "A DTensor as rank `rank` pickled it; makes no process group.");
}

void bind_parts(py::module_& module) {
  py::class_<WeakWrapper>(module, "WeakDTensor", "A DTensor that may go; calling it gives the DTensor or None.")
      .def(py::init<const DTensorObject&>(), py::arg("tensor"))
      .def("__call__", [](const WeakWrapper& self) -> OrNone<DTensorObject> { return self.get(); });
  const auto part = [](const char* what, auto get) {
    return [what, get](const DTensorObject& tensor) { return get(*unwrap(tensor, what)); };
  };
  module.def("local", part("local: tensor", [](const DTensor& tensor) { return tensor.local(); }), py::arg("tensor"),
             "This rank's storage, inside the graph.");
  module.def("layout",
             part("layout: tensor",
                  [](const DTensor& tensor) -> LayoutObject {
                    return layout_to_python(tensor.layout(), mesh_of(tensor.layout().mesh()));
                  }),
             py::arg("tensor"), "How the tensor lies.");
  module.def("placements",
             part("placements: tensor",
                  [](const DTensor& tensor) -> PlacementTuple { return placements_to_python(tensor.placements()); }),
             py::arg("tensor"), "One placement for each mesh dim.");
  module.def("placements_text",
             part("placements_text: tensor", [](const DTensor& tensor) { return to_string(tensor.placements()); }),
             py::arg("tensor"), "The placements as text, which `restore` reads.");
  module.def("mesh",
             part("mesh: tensor", [](const DTensor& tensor) -> MeshObject { return mesh_of(tensor.layout().mesh()); }),
             py::arg("tensor"), "The mesh that the tensor lies on.");
  module.def(
      "shape",
      part("shape: tensor", [](const DTensor& tensor) -> IntTuple { return integers_to_python(tensor.shape()); }),
      py::arg("tensor"), "The logical shape.");
  module.def("rank", part("rank: tensor", [](const DTensor& tensor) { return tensor.mesh().rank(); }),
             py::arg("tensor"), "The rank whose share this is.");
  module.def("is_member", part("is_member: tensor", [](const DTensor& tensor) { return tensor.mesh().is_member(); }),
             py::arg("tensor"), "Whether this rank lies in the tensor's mesh.");
}

}  // namespace

void bind_dtensor(py::module_& module) {
  bind_makers(module);
  bind_parts(module);
  module.def("redistribute", &redistribute, py::arg("tensor"), py::arg("device_mesh"), py::arg("placements"),
             "The same tensor laid out otherwise; the very same object for an equal layout.");
  module.def("to_local", &to_local, py::arg("tensor"), py::arg("grad_placements") = py::none(),
             "This rank's part for use outside.");
  module.def("full_tensor", &full_tensor, py::arg("tensor"), py::arg("grad_placements") = py::none(),
             "The whole tensor on every rank of the mesh.");
  module.def("item", &item, py::arg("tensor"), "The value of a tensor of one element.");
  module.def("row", &row, py::arg("tensor"), py::arg("index"), "x[i] of a tensor sharded by Shard(0).");
  module.def("wrap_like", &wrap_like, py::arg("tensor"), py::arg("local"),
             "A local tensor as another tensor of the same layout and shape.");
  module.def("wrap_gradient", &wrap_gradient, py::arg("tensor"), py::arg("local"),
             "A local tensor as the gradient of `tensor`.");
  module.def("gradient_local", &gradient_local, py::arg("tensor"), py::arg("gradient"),
             "The local tensor of a gradient of `tensor`, laid out as its gradients are.");
  module.def(
      "set_data", [](const DTensorObject& tensor, const DTensorObject& data) { set_data(tensor, data); },
      py::arg("tensor"), py::arg("data"), "tensor.data = data.");
  module.def(
      "set_base", [](const DTensorObject& view, const DTensorObject& base) { set_base(view, base); }, py::arg("view"),
      py::arg("base"), "Tells that one's local tensor is a view of the other's.");
  module.def(
      "follow_local", [](const DTensorObject& tensor) { follow_local(tensor); }, py::arg("tensor"),
      "Reads the local tensor's place in the graph again.");
}

}  // namespace hyper_parallel::bindings
