#include "hyper_parallel/operations/shape_rules.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

std::string view(const Dims& shape, const Dims& new_shape) { return to_string(view_rule(shape, new_shape)); }

TEST(ShapeRules_ViewShape, OpenSize_IsWhatIsLeft) {
  EXPECT_EQ(view_shape({6, 4}, Dims{-1}), (Dims{24}));
  EXPECT_EQ(view_shape({6, 4}, Dims{3, -1, 2}), (Dims{3, 4, 2}));
  EXPECT_EQ(view_shape({0, 4}, Dims{-1, 4}), (Dims{0, 4}));
  EXPECT_EQ(view_shape({}, Dims{}), (Dims{}));
  EXPECT_EQ(view_shape({}, Dims{1, -1}), (Dims{1, 1}));
}

TEST(ShapeRules_ViewShape, SizesThatDoNotHoldTheCells_Raise) {
  expect_error(kInvalid, "a tensor of shape (6, 4) with 24 cells cannot be viewed in shape (5, 5)",
               [] { view_shape({6, 4}, Dims{5, 5}); });
  expect_error(kInvalid, "cannot be viewed in shape (5, -1)", [] { view_shape({6, 4}, Dims{5, -1}); });
  expect_error(kInvalid, "cannot be viewed in shape (0, -1)", [] { view_shape({0, 4}, Dims{0, -1}); });
  expect_error(kInvalid, "shape (-1, -1) has -1 twice", [] { view_shape({6, 4}, Dims{-1, -1}); });
  expect_error(kInvalid, "shape (-2, 12) has the negative size -2", [] { view_shape({6, 4}, Dims{-2, 12}); });
}

TEST(ShapeRules_ViewShape, ProductBeyondInt64_Raises) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  expect_error(kInvalid, "9223372036854775807 * 9223372036854775807 does not fit in int64",
               [] { view_shape({6, 4}, Dims{kHuge, kHuge}); });
}

TEST(ShapeRules_View, DimsOfTheSameSize_StayAnAxis) {
  EXPECT_EQ(view({6, 4}, {6, 4}), "(6, 4):(a, b) -> (6, 4):(a, b)");
  EXPECT_EQ(view({6, 4}, {6, 2, 2}), "(6, 4):(a, b) -> (6, 2, 2):(a, b, -); b cut evenly, 2 cells");
}

TEST(ShapeRules_View, MergedDims_AreCutEvenlyByTheOutermost) {
  EXPECT_EQ(view({6, 4}, {24}), "(6, 4):(a, -) -> (24,):(a,); a cut evenly, 6 cells");
  EXPECT_EQ(view({2, 3, 4}, {6, 4}), "(2, 3, 4):(a, -, b) -> (6, 4):(a, b); a cut evenly, 2 cells");
}

TEST(ShapeRules_View, OtherGrouping_IsCutByWhatBothDivide) {
  EXPECT_EQ(view({4, 6}, {8, 3}), "(4, 6):(a, -) -> (8, 3):(a, -); a cut evenly, 4 cells");
  EXPECT_EQ(view({6, 4}, {4, 6}), "(6, 4):(a, -) -> (4, 6):(a, -); a cut evenly, 2 cells");
}

TEST(ShapeRules_View, DimsOfOneCell_ComeAndGo) {
  EXPECT_EQ(view({6, 4}, {1, 6, 1, 4, 1}), "(6, 4):(a, b) -> (1, 6, 1, 4, 1):(-, a, -, b, -)");
  EXPECT_EQ(view({1, 6, 1}, {6}), "(1, 6, 1):(-, a, -) -> (6,):(a,)");
  EXPECT_EQ(view({1, 4}, {4}), "(1, 4):(-, a) -> (4,):(a,)");
  EXPECT_EQ(view({1}, {1}), "(1,):(a,) -> (1,):(a,)");
  EXPECT_EQ(view({}, {1}), "():() -> (1,):(-,)");
}

TEST(ShapeRules_View, LeadingDimOfOneCell_LeavesTheNextToBeCut) {
  EXPECT_EQ(view({1, 6, 4}, {24}), "(1, 6, 4):(-, a, -) -> (24,):(a,); a cut evenly, 6 cells");
}

TEST(ShapeRules_View, NoCells_AreNeededWhole) {
  EXPECT_EQ(view({0, 4}, {2, 0, 3}), "(0, 4):(-, -) -> (2, 0, 3):(-, -, -)");
}

TEST(ShapeRules_View, EveryReduction_StaysPending) {
  EXPECT_EQ(view_rule({6}, {6}).pending, (Pending{Pending::Carriers::kEvery, kAllOps}));
  EXPECT_EQ(permutation_rule({6}, Dims{0}).pending, (Pending{Pending::Carriers::kEvery, kAllOps}));
  EXPECT_EQ(expand_rule({1}, {6}).pending, (Pending{Pending::Carriers::kEvery, kAllOps}));
}

TEST(ShapeRules_Permutation, Axes_GoWithTheDims) {
  EXPECT_EQ(to_string(permutation_rule({6, 4, 5}, Dims{2, 0, 1})), "(6, 4, 5):(a, b, c) -> (5, 6, 4):(c, a, b)");
  EXPECT_EQ(to_string(permutation_rule({}, Dims{})), "():() -> ():()");
}

TEST(ShapeRules_Permutation, OrderThatIsNone_Raises) {
  expect_error(kInvalid, "dims (0,) do not order the 2 dims of shape (6, 4)",
               [] { permutation_rule({6, 4}, Dims{0}); });
  expect_error(kInvalid, "dims (1, 1) have 1 twice, but must be a permutation",
               [] { permutation_rule({6, 4}, Dims{1, 1}); });
}

TEST(ShapeRules_ExpandedShape, MinusOne_KeepsASize) {
  EXPECT_EQ(expanded_shape({6, 1}, Dims{-1, 4}), (Dims{6, 4}));
  EXPECT_EQ(expanded_shape({1}, Dims{3, 0}), (Dims{3, 0}));
  EXPECT_EQ(expanded_shape({}, Dims{2}), (Dims{2}));
}

TEST(ShapeRules_ExpandedShape, SizesThatDoNotFit_Raise) {
  expect_error(kInvalid, "sizes (4,) are fewer than the dims of shape (6, 1)", [] { expanded_shape({6, 1}, Dims{4}); });
  expect_error(kInvalid,
               "shape (6, 2) cannot be expanded to sizes (6, 4): dim 1 has 2 cells, and only 1 can be repeated",
               [] { expanded_shape({6, 2}, Dims{6, 4}); });
  expect_error(kInvalid, "sizes (-1, 6) have -1, but must be sizes, or -1 for a dim that is there",
               [] { expanded_shape({6}, Dims{-1, 6}); });
  expect_error(kInvalid, "sizes (-2,) have -2", [] { expanded_shape({6}, Dims{-2}); });
}

TEST(ShapeRules_Expand, RepeatedDims_GoAlongNoAxis) {
  EXPECT_EQ(to_string(expand_rule({6, 1}, {3, 6, 4})), "(6, 1):(a, -) -> (3, 6, 4):(-, a, -)");
  EXPECT_EQ(to_string(expand_rule({1}, {1})), "(1,):(a,) -> (1,):(a,)");
}

}  // namespace
}  // namespace hyper_parallel
