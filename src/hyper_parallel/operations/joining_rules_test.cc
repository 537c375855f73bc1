#include "hyper_parallel/operations/joining_rules.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

TEST(JoiningRules_Cat, Dim_IsNeededWholeAndItsCellsAddUp) {
  EXPECT_EQ(to_string(cat_rule(std::vector<Dims>{{6, 4}, {6, 0}, {6, 3}}, 1)),
            "(6, 4):(a, -), (6, 0):(a, -), (6, 3):(a, -) -> (6, 7):(a, -)");
  EXPECT_EQ(to_string(cat_rule(std::vector<Dims>{{6}}, 0)), "(6,):(-,) -> (6,):(-,)");
}

TEST(JoiningRules_Cat, ShapesThatDifferElsewhere_Raise) {
  expect_error(kInvalid, "cat along dim 0 of shapes (6, 4) and (6, 3): they must agree but for that dim",
               [] { cat_rule(std::vector<Dims>{{6, 4}, {6, 3}}, 0); });
  expect_error(kInvalid, "cat along dim 0 of shapes (6, 4) and (6,)",
               [] { cat_rule(std::vector<Dims>{{6, 4}, {6}}, 0); });
  expect_error(kInvalid, "cat takes one tensor or more", [] { cat_rule({}, 0); });
}

TEST(JoiningRules_Stack, NewDim_IsNeededWhole) {
  EXPECT_EQ(to_string(stack_rule(std::vector<Dims>{{6, 4}, {6, 4}}, 1)),
            "(6, 4):(a, b), (6, 4):(a, b) -> (6, 2, 4):(a, -, b)");
  EXPECT_EQ(to_string(stack_rule(std::vector<Dims>{{}}, 0)), "():() -> (1,):(-,)");
}

TEST(JoiningRules_Stack, UnlikeShapes_Raise) {
  expect_error(kInvalid, "stack of shapes (6, 4) and (6, 3): they must be equal",
               [] { stack_rule(std::vector<Dims>{{6, 4}, {6, 3}}, 0); });
  expect_error(kInvalid, "stack takes one tensor or more", [] { stack_rule({}, 0); });
}

TEST(JoiningRules_Split, Pieces_HaveTheirSizes) {
  EXPECT_EQ(to_string(split_rule({6, 4}, 0, Dims{4, 0, 2})),
            "(6, 4):(-, a) -> (4, 4):(-, a), (0, 4):(-, a), (2, 4):(-, a)");
  EXPECT_TRUE(split_rule({0, 4}, 0, {}).results.empty());
}

TEST(JoiningRules_Select, Dim_IsGone) {
  EXPECT_EQ(to_string(select_rule({6, 4, 5}, 1)), "(6, 4, 5):(a, -, b) -> (6, 5):(a, b)");
}

TEST(JoiningRules_Pending, PiecesAndWholes_KeepEveryReduction) {
  const Pending every{Pending::Carriers::kEvery, kAllOps};
  EXPECT_EQ(cat_rule(std::vector<Dims>{{6}}, 0).pending, every);
  EXPECT_EQ(stack_rule(std::vector<Dims>{{6}}, 0).pending, every);
  EXPECT_EQ(split_rule({6}, 0, Dims{6}).pending, every);
  EXPECT_EQ(select_rule({6}, 0).pending, every);
}

TEST(JoiningRules_Gather, IndexMayBeCut_WhereTheOperandIsWhole) {
  EXPECT_EQ(to_string(gather_rule({6, 4, 5}, {6, 9, 3}, 1)),
            "(6, 4, 5):(a, -, -), (6, 9, 3):(a, b, -) -> (6, 9, 3):(a, b, -)");
}

TEST(JoiningRules_Gather, IndexThatDoesNotFit_Raises) {
  expect_error(kInvalid, "gather: the index of shape (6,) must have as many dims as the tensor of shape (6, 4)",
               [] { gather_rule({6, 4}, {6}, 0); });
  expect_error(kInvalid, "gather: the index of shape (7, 2) leaves the tensor of shape (6, 4) along dim 0",
               [] { gather_rule({6, 4}, {7, 2}, 1); });
}

TEST(JoiningRules_IndexSelect, Result_HasTheIndexsCells) {
  EXPECT_EQ(to_string(index_select_rule({6, 4}, {9}, 0)), "(6, 4):(-, a), (9,):(b,) -> (9, 4):(b, a)");
  EXPECT_EQ(to_string(index_select_rule({6, 4}, {}, 1)), "(6, 4):(a, -), ():() -> (6, 1):(a, -)");
}

TEST(JoiningRules_IndexSelect, IndexThatDoesNotFit_Raises) {
  expect_error(kInvalid, "index_select: the index of shape (2, 2) must have one dim",
               [] { index_select_rule({6, 4}, {2, 2}, 0); });
  expect_error(kInvalid, "and the tensor of shape () one or more", [] { index_select_rule({}, {2}, 0); });
}

TEST(JoiningRules_Embedding, IndexAndColumns_MayBeCut) {
  EXPECT_EQ(to_string(embedding_rule({9, 4}, {6, 2})), "(9, 4):(-, c), (6, 2):(a, b) -> (6, 2, 4):(a, b, c)");
  EXPECT_EQ(to_string(embedding_rule({9, 4}, {})), "(9, 4):(-, a), ():() -> (4,):(a,)");
}

TEST(JoiningRules_Embedding, WeightOfOtherDims_Raises) {
  expect_error(kInvalid, "embedding: the weight of shape (9,) must have 2 dims", [] { embedding_rule({9}, {6}); });
}

TEST(JoiningRules_Indices, Index_IsNoFactor) {
  for (const Rule& rule : {gather_rule({6}, {6}, 0), index_select_rule({6}, {2}, 0), embedding_rule({6, 2}, {3})}) {
    EXPECT_EQ(rule.pending, (Pending{Pending::Carriers::kOne, kAllOps}));
    EXPECT_EQ(rule.operands.at(0).term, Operand::Term::kFactor);
    EXPECT_EQ(rule.operands.at(1).term, Operand::Term::kIndex);
  }
}

}  // namespace
}  // namespace hyper_parallel
