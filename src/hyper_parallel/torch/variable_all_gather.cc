#include "hyper_parallel/torch/variable_all_gather.h"

#include <torch/csrc/autograd/custom_function.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/group_calls.h"
#include "hyper_parallel/torch/group_check.h"
#include "hyper_parallel/torch/messages.h"
#include "hyper_parallel/torch/split_lists.h"
#include "hyper_parallel/torch/variable_reduce_scatter.h"

namespace hyper_parallel {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

constexpr const char* kOperation = "differentiable_variable_all_gather";

void validate(const at::Tensor& input, at::IntArrayRef output_splits, const c10d::ProcessGroup& group) {
  check_has_rows(kOperation, input);
  check_splits(kOperation, "output_splits", output_splits, group.getSize());
  const int64_t own = output_splits[static_cast<size_t>(group.getRank())];
  HP_CHECK(own == input.size(0), kInvalidArgument, kOperation, ": output_splits[", group.getRank(), "] is ", own,
           " but this rank's input has ", input.size(0), " rows");
}

RankReport report(const at::Tensor& input, at::IntArrayRef output_splits) {
  return {str_cat("output_splits ", tuple_text(output_splits), ", ", describe_rows("input", input)), ""};
}

/// Every piece is received in its place; the own piece is copied while the others travel.
void gather_by_messages(const at::Tensor& input, const std::vector<at::Tensor>& pieces, c10d::ProcessGroup& group) {
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (const int64_t peer : peers_of(group)) {
    sends.push_back({peer, input});
    receives.push_back({peer, pieces[static_cast<size_t>(peer)]});
  }
  exchange_messages(group, sends, receives, [&] { pieces[static_cast<size_t>(group.getRank())].copy_(input); });
}

at::Tensor gather(const at::Tensor& any_input, at::IntArrayRef output_splits, c10d::ProcessGroup& group) {
  const at::Tensor input = as_plain_rows(any_input);
  at::Tensor output = empty_rows_like(input, checked_sum({output_splits.data(), output_splits.size()}));
  if (output.numel() == 0) return output;
  std::vector<at::Tensor> pieces = split_rows(output, output_splits);
  if (prefers_messages(group, input)) {
    gather_by_messages(input, pieces, group);
  } else {
    std::vector<std::vector<at::Tensor>> outputs{std::move(pieces)};
    std::vector<at::Tensor> inputs{input};
    run_collective(group, kOperation, [&] { return group.allgather(outputs, inputs); });
  }
  return output;
}

struct VariableAllGather : torch::autograd::Function<VariableAllGather> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::vector<int64_t>& output_splits, const GroupPtr& group) {
    context->saved_data["output_splits"] = output_splits;
    context->saved_data["group"] = group;
    return gather(input, output_splits, *group);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const std::vector<int64_t> output_splits = context->saved_data["output_splits"].toIntVector();
    const GroupPtr group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
    // An undefined gradient has been made zeros by torch, so that this rank still enters the collective.
    return {differentiable_variable_reduce_scatter(gradients[0], output_splits, group), {}, {}};
  }
};

}  // namespace

at::Tensor differentiable_variable_all_gather(const at::Tensor& input, at::IntArrayRef output_splits,
                                              const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  check_group(kOperation, group);
  validate_together(
      *group, kOperation, [&] { validate(input, output_splits, *group); },
      [&] { return report(input, output_splits); });
  return VariableAllGather::apply(input, output_splits.vec(), group);
}

}  // namespace hyper_parallel
