#include "hyper_parallel/torch/operand_checks.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/operation_stack.h"

namespace hyper_parallel {

void check_same_rank(const Operation& operation, std::string_view name, const DTensor& tensor, const DTensor& other) {
  HP_CHECK(tensor.mesh().rank() == other.mesh().rank(), kFailedPrecondition, place(operation, name),
           " is the part of rank ", tensor.mesh().rank(), " but another operand that of rank ", other.mesh().rank());
}

void check_one_element(const Operation& operation, std::string_view name, const Argument& argument,
                       std::string_view advice) {
  const at::Tensor& tensor = *argument.plain_tensor();
  HP_CHECK(tensor.defined(), kType, place(operation, name), " is an undefined tensor");
  HP_CHECK(tensor.numel() == 1, kType, place(operation, name), " is ", argument.describe(),
           ", but beside a DTensor a plain tensor must have one element; ", advice);
}

void check_reaches_base(const Operation& operation, const DTensor& written) {
  HP_CHECK(!written.is_copied_view(), kInvalidArgument, "operation '", operation.name,
           "' would write to a view of a tensor that was redistributed for it, and the write would not reach that "
           "tensor; clone the view, or lay the tensor out so that the view need not move it");
}

void check_no_leaf(const Operation& operation, const DTensor& written) {
  const at::Tensor& local = written.local();
  HP_CHECK(!at::GradMode::is_enabled() || !local.requires_grad() || !local.is_leaf(), kFailedPrecondition,
           "operation '", operation.name,
           "': a leaf Variable that requires grad is being used in an in-place operation.");
}

at::Tensor outline_of(const Operation& operation, const BoundCall& call) {
  const at::NoGradGuard no_grad;
  torch::jit::Stack stack = make_stack(operation, call.arguments, [](const BoundArgument&, const Argument& argument) {
    const DTensor* tensor = argument.dtensor();
    if (tensor == nullptr) return argument.plain_tensor()->to(at::kMeta);
    return at::empty(tensor->shape(), tensor->local().options().device(at::kMeta));
  });
  call.overload->op.callBoxed(stack);
  return std::move(stack.front()).toTensor();
}

}  // namespace hyper_parallel
