#include "hyper_parallel/operations/contraction_rule.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

std::string einsum(const char* equation, const std::vector<Dims>& shapes) {
  return to_string(einsum_rule(equation, shapes));
}

TEST(ContractionRule_Matmul, Matrices_SumOverTheDimThatMeets) {
  EXPECT_EQ(to_string(matmul_rule({6, 4}, {4, 5})), "(6, 4):(a, b), (4, 5):(b, c) -> (6, 5):(a, c); b reduced by sum");
}

TEST(ContractionRule_Matmul, Vectors_LoseTheirDim) {
  EXPECT_EQ(to_string(matmul_rule({4}, {4})), "(4,):(a,), (4,):(a,) -> ():(); a reduced by sum");
  EXPECT_EQ(to_string(matmul_rule({6, 4}, {4})), "(6, 4):(a, b), (4,):(b,) -> (6,):(a,); b reduced by sum");
  EXPECT_EQ(to_string(matmul_rule({4}, {4, 5})), "(4,):(a,), (4, 5):(a, b) -> (5,):(b,); a reduced by sum");
}

TEST(ContractionRule_Matmul, BatchDims_AreBroadcast) {
  EXPECT_EQ(to_string(matmul_rule({7, 1, 6, 4}, {3, 4, 5})),
            "(7, 1, 6, 4):(a, -, c, d), (3, 4, 5):(b, d, e) -> (7, 3, 6, 5):(a, b, c, e); d reduced by sum");
  EXPECT_EQ(to_string(matmul_rule({7, 6, 4}, {4, 5})),
            "(7, 6, 4):(a, b, c), (4, 5):(c, d) -> (7, 6, 5):(a, b, d); c reduced by sum");
}

TEST(ContractionRule_Matmul, DimsOfOneCellThatMeet_AreOneAxis) {
  EXPECT_EQ(to_string(matmul_rule({6, 1}, {1, 5})), "(6, 1):(a, b), (1, 5):(b, c) -> (6, 5):(a, c); b reduced by sum");
}

TEST(ContractionRule_Matmul, ShapesThatDoNotFit_Raise) {
  expect_error(kInvalid, "matmul of shapes (6, 4) and (3, 5): the dims that meet have 4 and 3 cells, but must be equal",
               [] { matmul_rule({6, 4}, {3, 5}); });
  expect_error(kInvalid, "the dims that meet have 1 and 3 cells", [] { matmul_rule({6, 1}, {3, 5}); });
  expect_error(kInvalid, "matmul takes operands of one dim or more, but the shapes are () and (3,)",
               [] { matmul_rule({}, {3}); });
  expect_error(kInvalid, "do not fit: dims of size 2 and 3 meet, but must be equal or 1",
               [] { matmul_rule({2, 6, 4}, {3, 4, 5}); });
}

TEST(ContractionRule_Pending, OneFactor_MayBeASumOrAMean) {
  EXPECT_EQ(matmul_rule({6, 4}, {4, 5}).pending, (Pending{Pending::Carriers::kOne, kLinearOps}));
}

TEST(ContractionRule_Linear, Weight_IsTransposed) {
  EXPECT_EQ(to_string(linear_rule({7, 6, 4}, {5, 4}, std::nullopt)),
            "(7, 6, 4):(a, b, c), (5, 4):(d, c) -> (7, 6, 5):(a, b, d); c reduced by sum");
  EXPECT_EQ(to_string(linear_rule({6, 4}, {4}, std::nullopt)),
            "(6, 4):(a, b), (4,):(b,) -> (6,):(a,); b reduced by sum");
}

TEST(ContractionRule_Linear, Bias_IsAddedToTheResult) {
  EXPECT_EQ(to_string(linear_rule({6, 4}, {5, 4}, Dims{5})),
            "(6, 4):(a, b), (5, 4):(c, b), +(5,):(c,) -> (6, 5):(a, c); b reduced by sum");
  EXPECT_EQ(to_string(linear_rule({4}, {4}, Dims{})), "(4,):(a,), (4,):(a,), +():() -> ():(); a reduced by sum");
}

TEST(ContractionRule_Linear, ShapesThatDoNotFit_Raise) {
  expect_error(kInvalid, "linear of shapes (6, 4) and (2, 5, 4): the weight must have 1 or 2 dims",
               [] { linear_rule({6, 4}, {2, 5, 4}, std::nullopt); });
  expect_error(kInvalid, "the input 1 or more", [] { linear_rule({}, {4}, std::nullopt); });
  expect_error(kInvalid, "linear of shapes (6, 4) and (5, 3): the last dims have 4 and 3 cells, but must be equal",
               [] { linear_rule({6, 4}, {5, 3}, std::nullopt); });
  expect_error(kInvalid, "shape (3,) does not broadcast with (6, 5)", [] { linear_rule({6, 4}, {5, 4}, Dims{3}); });
}

TEST(ContractionRule_Addend, Position_IsWhereItStandsAmongTheOperands) {
  const Rule rule = with_addend(matmul_rule({6, 4}, {4, 5}), {6, 1}, 0);
  EXPECT_EQ(to_string(rule), "+(6, 1):(a, -), (6, 4):(a, b), (4, 5):(b, c) -> (6, 5):(a, c); b reduced by sum");
}

TEST(ContractionRule_Addend, ShapeBeyondTheResult_Raises) {
  expect_error(kInvalid, "an operand of shape (2, 6, 5) cannot be added to a product of shape (6, 5)",
               [] { with_addend(matmul_rule({6, 4}, {4, 5}), {2, 6, 5}, 0); });
  expect_error(kInvalid, "an operand of shape (6, 5) cannot be added to a product of shape (1, 5)",
               [] { with_addend(matmul_rule({1, 4}, {4, 5}), {6, 5}, 0); });
}

TEST(ContractionRule_Einsum, Letters_AreAxesInAlphabeticalOrder) {
  EXPECT_EQ(einsum("ij,jk->ik", {{6, 4}, {4, 5}}), "(6, 4):(a, b), (4, 5):(b, c) -> (6, 5):(a, c); b reduced by sum");
  EXPECT_EQ(einsum("zb, ba -> az", {{6, 4}, {4, 5}}),
            "(6, 4):(c, b), (4, 5):(b, a) -> (5, 6):(a, c); b reduced by sum");
}

TEST(ContractionRule_Einsum, WithoutAnArrow_LettersThatStandOnceAreKept) {
  EXPECT_EQ(einsum("kj,ji", {{6, 4}, {4, 5}}), "(6, 4):(c, b), (4, 5):(b, a) -> (5, 6):(a, c); b reduced by sum");
}

TEST(ContractionRule_Einsum, OneOperand_IsSummedOrPermuted) {
  EXPECT_EQ(einsum("ij->j", {{6, 4}}), "(6, 4):(a, b) -> (4,):(b,); a reduced by sum");
  EXPECT_EQ(einsum("ij->ji", {{6, 4}}), "(6, 4):(a, b) -> (4, 6):(b, a)");
  EXPECT_EQ(einsum("->", {{}}), "():() -> ():()");
}

TEST(ContractionRule_Einsum, DimOfOneCell_IsBroadcast) {
  EXPECT_EQ(einsum("ij,jk->ik", {{6, 1}, {4, 5}}), "(6, 1):(a, -), (4, 5):(b, c) -> (6, 5):(a, c); b reduced by sum");
}

TEST(ContractionRule_Einsum, TextThatIsNoEquation_Raises) {
  expect_error(kInvalid, "einsum: an equation is of letters, ',' and '->'", [] { einsum("i1->i", {{6, 4}}); });
  expect_error(kInvalid, "an equation is of letters", [] { einsum("ij->i->j", {{6, 4}}); });
  expect_error(ErrorCode::kUnimplemented, "einsum: '...' is not supported; write the labels out",
               [] { einsum("...i->i", {{6, 4}}); });
}

TEST(ContractionRule_Einsum, EquationThatDoesNotFit_Raises) {
  expect_error(kInvalid, "einsum: the equation has 2 operands, but 1 were given", [] { einsum("ij,jk", {{6, 4}}); });
  expect_error(kInvalid, "an operand of shape (6, 4) was given 3 labels, but must have one per dim",
               [] { einsum("ijk->i", {{6, 4}}); });
  expect_error(kInvalid, "the result has a label that no operand has, or one twice",
               [] { einsum("ij->ik", {{6, 4}}); });
  expect_error(kInvalid, "or one twice", [] { einsum("ij->ii", {{6, 4}}); });
  expect_error(ErrorCode::kUnimplemented, "an operand of shape (4, 4) has a label twice: diagonals are not supported",
               [] { einsum("ii->i", {{4, 4}}); });
}

}  // namespace
}  // namespace hyper_parallel
