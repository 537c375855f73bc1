#include "hyper_parallel/torch/variable_all_to_all.h"

#include <torch/csrc/autograd/custom_function.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/group_calls.h"
#include "hyper_parallel/torch/group_check.h"
#include "hyper_parallel/torch/messages.h"
#include "hyper_parallel/torch/split_lists.h"

namespace hyper_parallel {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

constexpr const char* kOperation = "differentiable_all_to_all_single";

void validate(const at::Tensor& input, at::IntArrayRef input_splits, at::IntArrayRef output_splits,
              const c10d::ProcessGroup& group) {
  check_has_rows(kOperation, input);
  check_splits(kOperation, "input_splits", input_splits, group.getSize());
  check_splits(kOperation, "output_splits", output_splits, group.getSize());
  check_splits_cover(kOperation, "input_splits", input_splits, input);
  const auto rank = static_cast<size_t>(group.getRank());
  HP_CHECK(input_splits[rank] == output_splits[rank], kInvalidArgument, kOperation, ": rank ", rank, " sends itself ",
           input_splits[rank], " rows (input_splits ", tuple_text(input_splits), ") but expects ", output_splits[rank],
           " from itself (output_splits ", tuple_text(output_splits), ")");
}

RankReport report(const at::Tensor& input, at::IntArrayRef input_splits, at::IntArrayRef output_splits) {
  return {describe_rows("input", input), str_cat(tuple_text(input_splits), tuple_text(output_splits))};
}

struct SplitPair {
  std::vector<int64_t> input_splits;
  std::vector<int64_t> output_splits;
};

SplitPair parse_splits(const std::string& text) {
  Scanner scanner(text);
  SplitPair pair{scanner.integer_tuple(), {}};
  pair.output_splits = scanner.integer_tuple();
  return pair;
}

/// Every rank sees all lists and finds the same first pair that does not match.
void check_lists_match(const std::vector<std::string>& details) {
  std::vector<SplitPair> ranks;
  for (const std::string& detail : details) ranks.push_back(parse_splits(detail));
  for (size_t sender = 0; sender < ranks.size(); ++sender) {
    for (size_t receiver = 0; receiver < ranks.size(); ++receiver) {
      const int64_t sent = ranks[sender].input_splits[receiver];
      const int64_t expected = ranks[receiver].output_splits[sender];
      HP_CHECK(sent == expected, kFailedPrecondition, kOperation, ": rank ", sender, " sends ", sent, " rows to rank ",
               receiver, " (input_splits ", tuple_text(ranks[sender].input_splits), "), which expects ", expected,
               " (output_splits ", tuple_text(ranks[receiver].output_splits), ")");
    }
  }
}

/// Every piece is received in its place; the own piece is copied while the others travel.
void exchange_by_messages(const std::vector<at::Tensor>& input_pieces, const std::vector<at::Tensor>& output_pieces,
                          c10d::ProcessGroup& group) {
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (const int64_t peer : peers_of(group)) {
    sends.push_back({peer, input_pieces[static_cast<size_t>(peer)]});
    receives.push_back({peer, output_pieces[static_cast<size_t>(peer)]});
  }
  const auto rank = static_cast<size_t>(group.getRank());
  exchange_messages(group, sends, receives, [&] { output_pieces[rank].copy_(input_pieces[rank]); });
}

at::Tensor exchange(const at::Tensor& any_input, at::IntArrayRef input_splits, at::IntArrayRef output_splits,
                    c10d::ProcessGroup& group) {
  at::Tensor input = as_plain_rows(any_input);
  at::Tensor output = empty_rows_like(input, checked_sum({output_splits.data(), output_splits.size()}));
  if (prefers_messages(group, input)) {
    exchange_by_messages(split_rows(input, input_splits), split_rows(output, output_splits), group);
  } else {
    std::vector<int64_t> output_counts = output_splits.vec();
    std::vector<int64_t> input_counts = input_splits.vec();
    run_collective(group, kOperation,
                   [&] { return group.all_to_all_single(output, input, output_counts, input_counts); });
  }
  return output;
}

struct VariableAllToAll : torch::autograd::Function<VariableAllToAll> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::vector<int64_t>& input_splits, const std::vector<int64_t>& output_splits,
                            const GroupPtr& group) {
    context->saved_data["input_splits"] = input_splits;
    context->saved_data["output_splits"] = output_splits;
    context->saved_data["group"] = group;
    return exchange(input, input_splits, output_splits, *group);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const std::vector<int64_t> input_splits = context->saved_data["input_splits"].toIntVector();
    const std::vector<int64_t> output_splits = context->saved_data["output_splits"].toIntVector();
    const GroupPtr group = context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
    // An undefined gradient has been made zeros by torch, so that this rank still enters the collective.
    return {differentiable_all_to_all_single(gradients[0], output_splits, input_splits, group), {}, {}, {}};
  }
};

}  // namespace

at::Tensor differentiable_all_to_all_single(const at::Tensor& input, at::IntArrayRef input_splits,
                                            at::IntArrayRef output_splits,
                                            const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  check_group(kOperation, group);
  const auto details = validate_together(
      *group, kOperation, [&] { validate(input, input_splits, output_splits, *group); },
      [&] { return report(input, input_splits, output_splits); });
  check_lists_match(details);
  return VariableAllToAll::apply(input, input_splits.vec(), output_splits.vec(), group);
}

}  // namespace hyper_parallel
