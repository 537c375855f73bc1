#include "hyper_parallel/operations/loss_rules.h"

#include <gtest/gtest.h>

#include "hyper_parallel/operations/pointwise_rule.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

std::string class_loss(const Dims& input, const Dims& target, const std::optional<Dims>& weight,
                       LossReduction reduction) {
  return to_string(class_loss_rule(input, target, weight, reduction));
}

TEST(LossRules_Reduced, MeanAndSum_LeaveOneCell) {
  const Rule losses = pointwise_rule(std::vector<Dims>{{6, 4}, {4}});
  for (const LossReduction reduction : {LossReduction::kMean, LossReduction::kSum}) {
    EXPECT_EQ(to_string(reduced_loss(losses, reduction)),
              "(6, 4):(a, b), (4,):(b,) -> ():(); a reduced by sum; b reduced by sum");
  }
}

TEST(LossRules_Reduced, None_ChangesNothing) {
  const Rule losses = pointwise_rule(std::vector<Dims>{{6, 4}, {6, 4}});
  EXPECT_EQ(reduced_loss(losses, LossReduction::kNone), losses);
}

TEST(LossRules_Class, Classes_AreNeededWhole) {
  EXPECT_EQ(class_loss({6, 9}, {6}, std::nullopt, LossReduction::kNone), "(6, 9):(a, -), (6,):(a,) -> (6,):(a,)");
  EXPECT_EQ(class_loss({6, 9, 4}, {6, 4}, Dims{9}, LossReduction::kMean),
            "(6, 9, 4):(a, -, b), (6, 4):(a, b), (9,):(-,) -> ():(); a reduced by sum; b reduced by sum");
}

TEST(LossRules_Class, OneSample_HasClassesAlone) {
  EXPECT_EQ(class_loss({9}, {}, std::nullopt, LossReduction::kMean), "(9,):(-,), ():() -> ():()");
}

TEST(LossRules_Class, Probabilities_HaveTheInputsShape) {
  EXPECT_EQ(class_loss({6, 9}, {6, 9}, std::nullopt, LossReduction::kSum),
            "(6, 9):(a, -), (6, 9):(a, -) -> ():(); a reduced by sum");
}

TEST(LossRules_Class, NoReduction_StaysPending) {
  EXPECT_EQ(class_loss_rule({6, 9}, {6}, std::nullopt, LossReduction::kSum).pending, Pending{});
}

TEST(LossRules_Class, ShapesThatDoNotFit_Raise) {
  expect_error(kInvalid,
               "a loss over classes of an input of shape (6, 9) takes a target of shape (6,) or, of probabilities, "
               "(6, 9), not (9,)",
               [] { class_loss({6, 9}, {9}, std::nullopt, LossReduction::kMean); });
  expect_error(kInvalid, "a loss over 9 classes takes a weight for each, not one of shape (6,)",
               [] { class_loss({6, 9}, {6}, Dims{6}, LossReduction::kMean); });
  expect_error(kInvalid, "a loss over classes takes an input of one dim or more",
               [] { class_loss({}, {}, std::nullopt, LossReduction::kMean); });
}

}  // namespace
}  // namespace hyper_parallel
