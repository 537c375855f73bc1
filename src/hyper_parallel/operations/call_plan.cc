#include "hyper_parallel/operations/call_plan.h"

#include <algorithm>
#include <utility>

#include "hyper_parallel/geometry/distribution.h"

namespace hyper_parallel {

CallPlan plan_call(std::string_view operation, Rule rule, std::span<const GivenOperand> operands,
                   std::optional<size_t> written, int64_t rank) {
  CallPlan plan;
  plan.propagation = propagate(operation, rule, operands, written);
  const auto coordinate = operands.front().layout.mesh().coordinate(rank);
  plan.is_member = coordinate.has_value();
  if (plan.is_member) {
    for (const PreparedOperand& operand : plan.propagation.operands) {
      plan.adds.push_back(std::ranges::all_of(
          operand.added_once, [&](int64_t dim) { return (*coordinate)[static_cast<size_t>(dim)] == 0; }));
    }
    for (size_t i = 0; i < rule.results.size(); ++i) {
      plan.local_shapes.push_back(
          Distribution(plan.propagation.results[i], rule.results[i].shape).local_shape(*coordinate));
    }
  }
  plan.rule = std::move(rule);
  return plan;
}

}  // namespace hyper_parallel
