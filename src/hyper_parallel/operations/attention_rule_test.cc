#include "hyper_parallel/operations/attention_rule.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

const Dims kQuery{2, 3, 6, 8};
const Dims kKey{2, 3, 5, 8};
const Dims kValue{2, 3, 5, 4};

std::string rule_of(const std::optional<Dims>& mask, Causal causal) {
  return to_string(attention_rule(kQuery, kKey, kValue, mask, causal));
}

TEST(AttentionRule_Axes, BatchHeadsRowsAndValueColumns_MayBeCut) {
  EXPECT_EQ(rule_of(std::nullopt, Causal::kNo),
            "(2, 3, 6, 8):(a, b, d, -), (2, 3, 5, 8):(a, b, -, -), (2, 3, 5, 4):(a, b, -, c) -> "
            "(2, 3, 6, 4):(a, b, d, c)");
}

TEST(AttentionRule_Axes, CausalRows_AreNeededWhole) {
  EXPECT_EQ(rule_of(std::nullopt, Causal::kYes),
            "(2, 3, 6, 8):(a, b, -, -), (2, 3, 5, 8):(a, b, -, -), (2, 3, 5, 4):(a, b, -, c) -> "
            "(2, 3, 6, 4):(a, b, -, c)");
}

TEST(AttentionRule_Axes, NoBatch_IsTaken) {
  EXPECT_EQ(to_string(attention_rule({6, 8}, {5, 8}, {5, 4}, std::nullopt, Causal::kNo)),
            "(6, 8):(b, -), (5, 8):(-, -), (5, 4):(-, a) -> (6, 4):(b, a)");
}

TEST(AttentionRule_Mask, Mask_IsBroadcastToTheScores) {
  const auto mask_of = [](const Dims& mask) {
    return attention_rule(kQuery, kKey, kValue, mask, Causal::kNo).operands.at(3).axes;
  };
  EXPECT_EQ(mask_of({6, 5}), (std::vector<int>{3, kNoAxis}));
  EXPECT_EQ(mask_of({2, 1, 6, 5}), (std::vector<int>{0, kNoAxis, 3, kNoAxis}));
  EXPECT_EQ(mask_of({3, 1, 1}), (std::vector<int>{1, kNoAxis, kNoAxis}));
}

TEST(AttentionRule_Mask, MaskThatDoesNotFit_Raises) {
  expect_error(ErrorCode::kInvalidArgument, "does not broadcast", [] { rule_of(Dims{6, 4}, Causal::kNo); });
  expect_error(ErrorCode::kInvalidArgument,
               "attention: the mask of shape (1, 2, 3, 6, 5) does not broadcast to (2, 3, 6, 5)",
               [] { rule_of(Dims{1, 2, 3, 6, 5}, Causal::kNo); });
}

TEST(AttentionRule_Shapes, ShapesThatDoNotFit_Raise) {
  for (const auto& [query, key, value] :
       {std::tuple(Dims{6}, Dims{6}, Dims{6}), std::tuple(kQuery, Dims{2, 3, 5, 7}, kValue),
        std::tuple(kQuery, kKey, Dims{2, 3, 6, 4}), std::tuple(kQuery, Dims{5, 8}, kValue)}) {
    expect_error(ErrorCode::kInvalidArgument, "they must be (..., L, E), (..., S, E) and (..., S, V)",
                 [&] { attention_rule(query, key, value, std::nullopt, Causal::kNo); });
  }
}

TEST(AttentionRule_Shapes, UnlikeHeads_AreNotSupported) {
  expect_error(ErrorCode::kUnimplemented,
               "attention of shapes (2, 3, 6, 8), (2, 1, 5, 8) and (2, 1, 5, 4): their batch dims and heads must be "
               "equal",
               [] { attention_rule(kQuery, {2, 1, 5, 8}, {2, 1, 5, 4}, std::nullopt, Causal::kNo); });
}

}  // namespace
}  // namespace hyper_parallel
