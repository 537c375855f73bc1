#include "torch_planner.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <ATen/ops/from_blob.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <utility>

#include "core_conversions.h"
#include "core_planner.h"
#include "core_value.h"
#include "hyper_parallel/torch/group_exchange.h"
#include "hyper_parallel/torch/scalar_dtype.h"
#include "hyper_parallel/torch/tensor_planner.h"
#include "torch_wrapper.h"

namespace hyper_parallel::bindings {
namespace {

std::vector<NamedTensor> tensors_from_python(py::handle tensors) {
  HP_CHECK(PyDict_Check(tensors.ptr()), kType, "tensors is ", repr_text(tensors), " but must be a dict");
  std::vector<NamedTensor> named;
  for (const auto& [key, tensor] : py::reinterpret_borrow<py::dict>(tensors)) {
    std::string name = text_from_python(key, "a tensor's name");
    if (is_wrapper(tensor)) {
      named.push_back({std::move(name), *unwrap_unchecked(tensor)});
      continue;
    }
    HP_CHECK(THPVariable_Check(tensor.ptr()), kType, "tensors['", name, "'] is ", repr_text(tensor),
             " but must be a tensor");
    named.push_back({std::move(name), THPVariable_Unpack(tensor.ptr())});
  }
  return named;
}

/// Where an item's cells lie, as a tensor of the stored dtype and the overlap's sizes.
at::Tensor overlap_tensor(const TargetView& target, const ReadItemObject& object) {
  const Box& box = object.target.boxes[static_cast<size_t>(object.item.box)];
  const Dims strides = row_major_strides(box.sizes);
  const auto type = scalar_type(object.stored_dtype);
  HP_CHECK(type.has_value(), kUnimplemented, "torch has no dtype for ", object.stored_dtype);
  const auto width = static_cast<int64_t>(c10::elementSize(*type));
  const Dims& sizes = object.item.overlap.sizes;
  // The tensor shares the memory, and keeps whoever owns it.
  return at::from_blob(
      target.storage.data() + target.view.offset * width, {sizes.data(), sizes.size()},
      {strides.data(), strides.size()}, [owner = target.owner](void*) {}, at::TensorOptions().dtype(*type));
}

/// A TensorLoadPlanner that a Python class may override.
class PythonTensorLoadPlanner final : public TensorLoadPlanner {
 public:
  using TensorLoadPlanner::TensorLoadPlanner;

  LoadPlan build_local_plan(const CheckpointMetadata& metadata) override {
    return with_python([&]() -> LoadPlan {
      // Targets and staging are the base's in any case.
      LoadPlan plan = TensorLoadPlanner::build_local_plan(metadata);
      metadata_ = &metadata;
      // Values that Python cannot hold (a dict's list as a key) have to be found before a target is touched.
      named_values_to_python(metadata.values());
      const auto method = py::get_override(role(), "build_local_plan");
      if (method) plan = method(py::cast(metadata)).cast<LoadPlanObject>().plan;
      asked_.targets = plan.targets;
      return plan;
    });
  }

  TargetView acquire_tensor(const LoadPlan& plan, const ReadItem& item) override {
    return with_python([&]() -> TargetView {
      const auto method = py::get_override(role(), "acquire_tensor");
      if (!method) return TensorLoadPlanner::acquire_tensor(plan, item);
      HP_CHECK(metadata_ != nullptr, kFailedPrecondition, "acquire_tensor: build_local_plan must be called first");
      const ReadItemObject object = read_item_object(*metadata_, plan, item);
      return view_of(method(object).cast<at::Tensor>(), object);
    });
  }

  void finish() override {
    const bool is_overridden = with_python([&] {
      const auto method = py::get_override(role(), "finish");
      if (method) method();
      return static_cast<bool>(method);
    });
    if (!is_overridden) TensorLoadPlanner::finish();
  }

  /// `acquire_tensor` for Python: a tensor over the item's cells in the target.
  at::Tensor acquire_for_python(const ReadItemObject& object) {
    HP_CHECK(static_cast<size_t>(object.item.target) < asked_.targets.size(), kFailedPrecondition,
             "acquire_tensor is called by a load, with an item of its plan");
    return overlap_tensor(TensorLoadPlanner::acquire_tensor(asked_, object.item), object);
  }

 private:
  const TensorLoadPlanner* role() const { return this; }

  static TargetView view_of(const at::Tensor& tensor, const ReadItemObject& object) {
    const Dims sizes(std::span<const int64_t>(tensor.sizes().data(), tensor.sizes().size()));
    HP_CHECK(
        tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg(), kInvalidArgument,
        "acquire_tensor returned a tensor that is not plain CPU memory: lazily conjugated or negated, sparse, or on ",
        tensor.device().str());
    HP_CHECK(sizes == object.item.overlap.sizes && stored_dtype(tensor.scalar_type()) == object.stored_dtype,
             kInvalidArgument, "acquire_tensor returned a ", c10::toString(tensor.scalar_type()), " tensor of shape ",
             tuple_text(sizes), " on ", tensor.device().str(), " but must return a CPU tensor of dtype ",
             object.stored_dtype, " and shape ", tuple_text(object.item.overlap.sizes));
    int64_t last = 0;
    for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * tensor.stride(static_cast<int64_t>(d));
    const auto bytes = static_cast<size_t>((last + 1) * static_cast<int64_t>(tensor.element_size()));
    auto* begin = static_cast<std::byte*>(tensor.mutable_data_ptr());
    const Dims strides(std::span<const int64_t>(tensor.strides().data(), tensor.strides().size()));
    return {{begin, bytes}, collapsed_view(0, sizes, strides), std::make_shared<at::Tensor>(tensor)};
  }

  const CheckpointMetadata* metadata_ = nullptr;
  LoadPlan asked_;  // the targets alone: storages in Python ask with an item and no plan
};

at::Tensor data_tensor(TensorSavePlanner& self, const WriteItemObject& object) {
  HeldBytes held = self.get_data(object.item());
  const auto type = scalar_type(object.tensor.dtype);
  HP_CHECK(type.has_value(), kUnimplemented, "torch has no dtype for ", object.tensor.dtype);
  const Dims& sizes = object.tensor.boxes[0].sizes;
  auto* begin = const_cast<std::byte*>(held.bytes.data());
  return at::from_blob(
      begin, {sizes.data(), sizes.size()}, [owner = std::move(held.owner)](void*) {}, at::TensorOptions().dtype(*type));
}

}  // namespace

void bind_tensor_planners(py::module_& module) {
  using PythonTensorSavePlanner = PythonSavePlanner<TensorSavePlanner>;
  py::class_<TensorSavePlanner, SavePlanner, PythonTensorSavePlanner>(
      module, "TensorSavePlanner", "Plans and reads DTensors and plain tensors for a save.")
      .def(
          py::init([](const py::dict& tensors, const py::dict& values, const py::object& structure) {
            return std::make_unique<PythonTensorSavePlanner>(TensorState{tensors_from_python(tensors),
                                                                         named_values_from_python(values, "values"),
                                                                         value_from_python(structure, "structure")});
          }),
          py::arg("tensors"), py::arg("values"), py::arg("structure"),
          "Args:\n    tensors: DTensors and tensors by name.\n    values: Everything else by name.\n    structure: How "
          "the names nest.")
      .def(
          "build_local_plan", [](TensorSavePlanner& self) { return self.TensorSavePlanner::build_local_plan(); },
          "What this rank holds.\n\nRaises:\n    InvalidArgumentError: A Partial DTensor.\n    ArgumentTypeError: A "
          "dtype or a kind of tensor that cannot be stored.")
      .def("get_data", &data_tensor, py::arg("item"), "The box as a CPU tensor of its sizes; shared where it can be.");
  py::class_<TensorLoadPlanner, LoadPlanner, PythonTensorLoadPlanner>(module, "TensorLoadPlanner",
                                                                      "Fills DTensors and plain tensors in place.")
      .def(py::init([](const py::dict& tensors, const TextSequence& allow_missing, const TextSequence& allow_cast) {
             return std::make_unique<PythonTensorLoadPlanner>(
                 tensors_from_python(tensors),
                 LoadOptions{.allow_missing = texts_from_python(allow_missing, "allow_missing"),
                             .allow_extra = {},
                             .allow_cast = texts_from_python(allow_cast, "allow_cast")});
           }),
           py::arg("tensors"), py::arg("allow_missing"), py::arg("allow_cast"),
           "Args:\n    tensors: DTensors and tensors by name.\n    allow_missing: Names or patterns that need not be "
           "stored.\n    allow_cast: Names or patterns whose dtype may differ from the stored one.")
      .def(
          "build_local_plan",
          [](TensorLoadPlanner& self, const CheckpointMetadata& metadata) {
            return LoadPlanObject{self.TensorLoadPlanner::build_local_plan(metadata), &metadata};
          },
          py::arg("metadata"), py::keep_alive<0, 2>(), "What fills this rank's targets; does not touch them.")
      .def(
          "acquire_tensor",
          [](PythonTensorLoadPlanner& self, const ReadItemObject& item) { return self.acquire_for_python(item); },
          py::arg("item"), "Where the item's cells go: a tensor of its lengths that shares the target's memory.")
      .def(
          "finish", [](TensorLoadPlanner& self) { self.TensorLoadPlanner::finish(); },
          "Copies what was read beside the targets.");
  py::class_<GroupExchange, Exchange, std::shared_ptr<GroupExchange>>(module, "GroupExchange",
                                                                      "An exchange over a process group.")
      .def(py::init([](const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
             return std::make_shared<GroupExchange>(group);
           }),
           py::arg("group").none(false),
           "Args:\n    group: A process group with a backend for CPU tensors.\n\nRaises:\n    FailedPreconditionError: "
           "It has none.");
}

}  // namespace hyper_parallel::bindings
