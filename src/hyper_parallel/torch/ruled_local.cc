#include "hyper_parallel/torch/ruled_local.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/operation_stack.h"
#include "hyper_parallel/torch/ruled_reduction.h"

namespace hyper_parallel {
namespace {

using torch::jit::Stack;

std::vector<int64_t> result_sizes(const PreparedCall& prepared) {
  return prepared.plan.local_shapes.front().to_vector();
}

/// torch refuses a view that the strides do not allow only where there are cells: a part without any is taken for one
/// with a row, so that all ranks raise.
void check_viewable_strides(const PreparedCall& prepared) {
  const at::Tensor& local = prepared.locals.front();
  const Dims& shape = prepared.shapes.front();
  if (local.numel() > 0 || std::ranges::find(shape, 0) != shape.end()) return;
  const auto with_a_row = [](std::vector<int64_t> sizes) {
    std::ranges::replace(sizes, 0, 1);
    return sizes;
  };
  at::empty_strided(with_a_row(local.sizes().vec()), local.strides(), local.options().device(at::kMeta))
      .view(with_a_row(result_sizes(prepared)));
}

Stack call_with_sizes(const PreparedCall& prepared) {
  Stack stack = stack_on(prepared.operation, prepared.call, prepared.locals);
  for (size_t i = 0; i < stack.size(); ++i) {
    if (prepared.call.arguments[i].parameter->kind == ParameterKind::kIntegerList) stack[i] = result_sizes(prepared);
  }
  prepared.call.overload->op.callBoxed(stack);
  return stack;
}

}  // namespace

Stack stack_on(const Operation& operation, const BoundCall& call, const std::vector<at::Tensor>& locals) {
  size_t next = 0;
  return make_stack(operation, call.arguments, [&](const BoundArgument&, const Argument&) { return locals[next++]; });
}

Stack call_on(const Operation& operation, const BoundCall& call, const std::vector<at::Tensor>& locals) {
  Stack stack = stack_on(operation, call, locals);
  call.overload->op.callBoxed(stack);
  return stack;
}

Stack call_locally(const PreparedCall& prepared) {
  const auto as_called = [&] { return call_on(prepared.operation, prepared.call, prepared.locals); };
  switch (prepared.operation.local) {
    case LocalCall::kAsCalled:
      return as_called();
    case LocalCall::kResultSizes:
      return call_with_sizes(prepared);
    case LocalCall::kView:
      check_viewable_strides(prepared);
      return {prepared.locals.front().view(result_sizes(prepared))};
    case LocalCall::kReshape:
      return {prepared.locals.front().reshape(result_sizes(prepared))};
    case LocalCall::kMean:
      return is_cut(prepared.plan) ? Stack{mean_of_parts(prepared)} : as_called();
    case LocalCall::kExtreme:
      return is_cut(prepared.plan) && has_no_cells(prepared) ? neutral_result(prepared) : as_called();
    case LocalCall::kMeanLoss:
    case LocalCall::kClassLoss:
      return is_cut(prepared.plan) && takes_mean(prepared) ? Stack{mean_of_losses(prepared)} : as_called();
  }
  raise(ErrorCode::kInternal, "unknown local call");
}

}  // namespace hyper_parallel
