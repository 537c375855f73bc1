#include "hyper_parallel/operations/loss_rules.h"

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/operations/joining_rules.h"

namespace hyper_parallel {

Rule reduced_loss(Rule rule, LossReduction reduction) {
  if (reduction == LossReduction::kNone) return rule;
  for (Axis& axis : rule.axes) axis.use = Axis::Use::kReduced;
  rule.results = {Operand{}};
  return rule;
}

Rule class_loss_rule(const Dims& input, const Dims& target, const std::optional<Dims>& weight,
                     LossReduction reduction) {
  HP_CHECK(!input.empty(), kInvalidArgument, "a loss over classes takes an input of one dim or more");
  const size_t classes = input.size() == 1 ? 0 : 1;
  // A loss takes one class of each sample.
  Rule rule = select_rule(input, static_cast<int64_t>(classes));
  rule.pending = {};
  const Operand scores = rule.operands.front();
  const Operand samples = rule.results.front();
  const bool probabilities = target == input;
  HP_CHECK(probabilities || target == samples.shape, kInvalidArgument, "a loss over classes of an input of shape ",
           tuple_text(input), " takes a target of shape ", tuple_text(samples.shape), " or, of probabilities, ",
           tuple_text(input), ", not ", tuple_text(target));
  HP_CHECK(!weight || *weight == Dims{input[classes]}, kInvalidArgument, "a loss over ", input[classes],
           " classes takes a weight for each, not one of shape ", tuple_text(weight.value_or(Dims{})));
  rule.operands = {scores, probabilities ? scores : samples};
  if (weight) rule.operands.push_back({*weight, {kNoAxis}});
  return reduced_loss(std::move(rule), reduction);
}

}  // namespace hyper_parallel
