#include "hyper_parallel/operations/pointwise_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;

std::string rule_of(const std::vector<Dims>& shapes) { return to_string(pointwise_rule(shapes)); }

TEST(PointwiseRule_Broadcast, Shapes_AreAlignedAtTheLastDim) {
  EXPECT_EQ(broadcast_shape(std::vector<Dims>{{6, 1}, {4}}), (Dims{6, 4}));
  EXPECT_EQ(broadcast_shape(std::vector<Dims>{{4}, {2, 1, 1}, {3, 4}}), (Dims{2, 3, 4}));
  EXPECT_EQ(broadcast_shape(std::vector<Dims>{{}, {3}}), (Dims{3}));
  EXPECT_EQ(broadcast_shape(std::vector<Dims>{{}}), (Dims{}));
}

TEST(PointwiseRule_Broadcast, ZeroCells_MeetOneCellAlone) {
  EXPECT_EQ(broadcast_shape(std::vector<Dims>{{1}, {0}}), (Dims{0}));
  EXPECT_EQ(broadcast_shape(std::vector<Dims>{{0}, {1}}), (Dims{0}));
  expect_error(ErrorCode::kInvalidArgument, "shape (2,) does not broadcast with (0,): sizes 2 and 0 meet",
               [] { broadcast_shape(std::vector<Dims>{{0}, {2}}); });
}

TEST(PointwiseRule_Broadcast, UnlikeSizes_RaiseWithBothShapes) {
  expect_error(ErrorCode::kInvalidArgument,
               "shape (3,) does not broadcast with (6, 4): sizes 3 and 4 meet, but must be equal or 1",
               [] { pointwise_rule(std::vector<Dims>{{6, 4}, {3}}); });
}

TEST(PointwiseRule_Axes, EqualShapes_GoAlongTheSameAxes) {
  EXPECT_EQ(rule_of({{6, 4}, {6, 4}}), "(6, 4):(a, b), (6, 4):(a, b) -> (6, 4):(a, b)");
}

TEST(PointwiseRule_Axes, BroadcastDims_AreNeededWhole) {
  EXPECT_EQ(rule_of({{6, 1}, {4}}), "(6, 1):(a, -), (4,):(b,) -> (6, 4):(a, b)");
  EXPECT_EQ(rule_of({{}, {2, 3}}), "():(), (2, 3):(a, b) -> (2, 3):(a, b)");
}

TEST(PointwiseRule_Axes, DimsOfOneCellInEveryOperand_GoAlongAnAxis) {
  EXPECT_EQ(rule_of({{1, 4}, {1, 4}}), "(1, 4):(a, b), (1, 4):(a, b) -> (1, 4):(a, b)");
}

TEST(PointwiseRule_Axes, DimsOfNoCells_GoAlongAnAxisWhereAllHaveNone) {
  EXPECT_EQ(rule_of({{0, 4}, {1, 4}}), "(0, 4):(a, b), (1, 4):(-, b) -> (0, 4):(a, b)");
}

TEST(PointwiseRule_Axes, NoReduction_StaysPending) {
  EXPECT_EQ(pointwise_rule(std::vector<Dims>{{3}}).pending, Pending{});
}

TEST(PointwiseRule_BroadcastAxes, ShorterShape_TakesTheLastOnes) {
  EXPECT_THAT(broadcast_axes({1, 4}, {6, 3, 4}, std::vector<int>{7, 8, 9}), ElementsAre(kNoAxis, 9));
}

}  // namespace
}  // namespace hyper_parallel
