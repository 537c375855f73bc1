#include "hyper_parallel/operations/rule.h"

#include <gtest/gtest.h>

#include <utility>

namespace hyper_parallel {
namespace {

Rule rule_of(std::vector<Axis> axes, std::vector<Operand> operands, std::vector<Operand> results) {
  return {std::move(axes), std::move(operands), std::move(results), ReduceOp::kSum, {}};
}

TEST(Rule_Text, Axes_AreNamedByLettersAndWholeDimsByADash) {
  const Rule rule = rule_of({{6}, {4}}, {{{6, 3, 4}, {0, kNoAxis, 1}}}, {{{6, 4}, {0, 1}}});
  EXPECT_EQ(to_string(rule), "(6, 3, 4):(a, -, b) -> (6, 4):(a, b)");
}

TEST(Rule_Text, UseAndCut_AreSaidOfEachAxis) {
  Rule rule = rule_of({{6, Axis::Use::kReduced}, {4, Axis::Use::kParallel, Axis::Cut::kEven}}, {{{6, 4}, {0, 1}}},
                      {{{8}, {1}}});
  rule.reduction = ReduceOp::kMax;
  EXPECT_EQ(to_string(rule), "(6, 4):(a, b) -> (8,):(b,); a reduced by max; b cut evenly, 4 cells");
}

TEST(Rule_Text, Addend_HasAPlus) {
  const Rule rule = rule_of({{3}}, {{{3}, {0}}, {{}, {}, Operand::Term::kAddend}}, {{{3}, {0}}, {{3}, {0}}});
  EXPECT_EQ(to_string(rule), "(3,):(a,), +():() -> (3,):(a,), (3,):(a,)");
}

TEST(Rule_Text, MoreAxesThanLetters_AreNumbered) {
  Rule rule;
  Operand operand;
  for (int axis = 0; axis < 28; ++axis) {
    rule.axes.push_back({1});
    operand.axes.push_back(axis);
  }
  operand.shape = Dims(28, 1);
  rule.operands = {operand};
  const std::string text = to_string(rule);
  EXPECT_NE(text.find("y, z, a1, b1)"), std::string::npos) << text;
}

TEST(Rule_ReduceOps, Set_HoldsWhatItWasMadeOf) {
  EXPECT_TRUE(kLinearOps.contains(ReduceOp::kSum));
  EXPECT_TRUE(kLinearOps.contains(ReduceOp::kAvg));
  EXPECT_FALSE(kLinearOps.contains(ReduceOp::kMax));
  EXPECT_FALSE(ReduceOps{}.contains(ReduceOp::kSum));
  EXPECT_EQ(kAllOps, (ReduceOps{ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAvg, ReduceOp::kSum}));
}

}  // namespace
}  // namespace hyper_parallel
