#include "hyper_parallel/torch/variable_reduce_scatter.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/group_calls.h"
#include "hyper_parallel/torch/group_check.h"
#include "hyper_parallel/torch/split_lists.h"
#include "hyper_parallel/torch/variable_all_gather.h"

namespace hyper_parallel {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

constexpr const char* kOperation = "variable_reduce_scatter";

c10d::ReduceOp::RedOpType reduce_op(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return c10d::ReduceOp::SUM;
    case Reduction::kMax:
      return c10d::ReduceOp::MAX;
    case Reduction::kMin:
      return c10d::ReduceOp::MIN;
  }
  raise(ErrorCode::kInternal, "Reduction has no such value");
}

void validate(const at::Tensor& input, at::IntArrayRef input_splits, Reduction reduction,
              const c10d::ProcessGroup& group) {
  check_has_rows(kOperation, input);
  check_reducible(kOperation, input.scalar_type(), reduction);
  check_splits(kOperation, "input_splits", input_splits, group.getSize());
  check_splits_cover(kOperation, "input_splits", input_splits, input);
}

void validate_on_all_ranks(const at::Tensor& input, at::IntArrayRef input_splits, Reduction reduction,
                           c10d::ProcessGroup& group) {
  validate_together(
      group, kOperation, [&] { validate(input, input_splits, reduction, group); },
      [&] {
        return RankReport{str_cat(to_string(reduction), ", input_splits ", tuple_text(input_splits), ", ",
                                  describe_rows("input", input)),
                          ""};
      });
}

/// The round that gives every member of the group its rows, flat.
ReduceRound round_of(const at::Tensor& input, at::IntArrayRef input_splits, const c10d::ProcessGroup& group) {
  ReduceRound round;
  for (int64_t rank = 0; rank < group.getSize(); ++rank) round.members.push_back(rank);
  for (const at::Tensor& rows : split_rows(input, input_splits)) round.shares.push_back(rows.view(-1));
  return round;
}

at::Tensor reduce_scatter(const at::Tensor& any_input, at::IntArrayRef input_splits, Reduction reduction,
                          c10d::ProcessGroup& group) {
  const at::Tensor input = as_plain_rows(any_input);
  at::Tensor output = empty_rows_like(input, input_splits[static_cast<size_t>(group.getRank())]);
  if (input.numel() == 0) return output;
  if (prefers_messages(group, input)) {
    reduce_shares(group, round_of(input, input_splits, group), reduction, output.view(-1));
    return output;
  }
  std::vector<at::Tensor> outputs{output};
  std::vector<std::vector<at::Tensor>> inputs{split_rows(input, input_splits)};
  c10d::ReduceScatterOptions options;
  options.reduceOp = reduce_op(reduction);
  run_collective(group, kOperation, [&] { return group.reduce_scatter(outputs, inputs, options); });
  return output;
}

struct VariableReduceScatter : torch::autograd::Function<VariableReduceScatter> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::vector<int64_t>& input_splits, const GroupPtr& group) {
    context->saved_data["input_splits"] = input_splits;
    context->saved_data["group"] = group;
    return reduce_scatter(input, input_splits, Reduction::kSum, *group);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const std::vector<int64_t> input_splits = context->saved_data["input_splits"].toIntVector();
    const GroupPtr group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
    // An undefined gradient has been made zeros by torch, so that this rank still enters the collective.
    return {differentiable_variable_all_gather(gradients[0], input_splits, group), {}, {}};
  }
};

}  // namespace

at::Tensor variable_reduce_scatter(const at::Tensor& input, at::IntArrayRef input_splits, Reduction reduction,
                                   const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  check_group(kOperation, group);
  const at::NoGradGuard no_grad;
  validate_on_all_ranks(input, input_splits, reduction, *group);
  return reduce_scatter(input, input_splits, reduction, *group);
}

at::Tensor differentiable_variable_reduce_scatter(const at::Tensor& input, at::IntArrayRef input_splits,
                                                  const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  check_group(kOperation, group);
  validate_on_all_ranks(input, input_splits, Reduction::kSum, *group);
  return VariableReduceScatter::apply(input, input_splits.vec(), group);
}

}  // namespace hyper_parallel
