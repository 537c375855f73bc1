#include "torch_collectives.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/variable_all_gather.h"
#include "hyper_parallel/torch/variable_all_to_all.h"
#include "hyper_parallel/torch/variable_reduce_scatter.h"
#include "torch_signatures.h"
#include "torch_wrapper.h"

namespace hyper_parallel::bindings {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// `operation` names the caller in the text.
const at::Tensor& checked_input(py::handle input, const char* operation) {
  HP_CHECK(THPVariable_Check(input.ptr()) && !is_wrapper(input), kType, operation,
           ": input_tensor must be a plain torch.Tensor, not ", repr_text(input));
  return THPVariable_Unpack(input.ptr());
}

Group checked_group(py::handle group, const char* operation) {
  HP_CHECK(!group.is_none() && py::isinstance<c10d::ProcessGroup>(group), kType, operation,
           ": group must be a torch.distributed.ProcessGroup, not ", repr_text(group));
  return group.cast<Group>();
}

at::Tensor all_gather(const TensorObject& input, const IntSequence& splits, const GroupObject& group) {
  constexpr const char* kName = "differentiable_variable_all_gather";
  const at::Tensor& tensor = checked_input(input, kName);
  const std::vector<int64_t> rows = integers_from_python(splits, "output_splits");
  const Group checked = checked_group(group, kName);
  const py::gil_scoped_release no_gil;
  return differentiable_variable_all_gather(tensor, rows, checked);
}

at::Tensor all_to_all(const TensorObject& input, const IntSequence& input_splits, const IntSequence& output_splits,
                      const GroupObject& group) {
  constexpr const char* kName = "differentiable_all_to_all_single";
  const at::Tensor& tensor = checked_input(input, kName);
  const std::vector<int64_t> sent = integers_from_python(input_splits, "input_splits");
  const std::vector<int64_t> received = integers_from_python(output_splits, "output_splits");
  const Group checked = checked_group(group, kName);
  const py::gil_scoped_release no_gil;
  return differentiable_all_to_all_single(tensor, sent, received, checked);
}

at::Tensor reduce_scatter(const TensorObject& input, const IntSequence& splits, const GroupObject& group) {
  constexpr const char* kName = "differentiable_variable_reduce_scatter";
  const at::Tensor& tensor = checked_input(input, kName);
  const std::vector<int64_t> rows = integers_from_python(splits, "input_splits");
  const Group checked = checked_group(group, kName);
  const py::gil_scoped_release no_gil;
  return differentiable_variable_reduce_scatter(tensor, rows, checked);
}

}  // namespace

void bind_collectives(py::module_& module) {
  module.def("differentiable_variable_all_gather", &all_gather, py::arg("input_tensor"), py::arg("output_splits"),
             py::arg("group"), "Concatenates the members' rows, unequally many, on every member.");
  module.def("differentiable_all_to_all_single", &all_to_all, py::arg("input_tensor"), py::arg("input_splits"),
             py::arg("output_splits"), py::arg("group"), "Exchanges rows between all members.");
  module.def("differentiable_variable_reduce_scatter", &reduce_scatter, py::arg("input_tensor"),
             py::arg("input_splits"), py::arg("group"), "Sums the members' tensors and keeps this member's rows.");
}

}  // namespace hyper_parallel::bindings
