#include "hyper_parallel/operations/reduction_rule.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

std::string reduced(const Dims& shape, const std::vector<int64_t>& dims, KeepDims keep, std::optional<ReduceOp> op) {
  return to_string(reduction_rule(shape, dims, keep, op));
}

TEST(ReductionRule_Combined, ReducedDims_AreAxesThatTheResultLacks) {
  EXPECT_EQ(reduced({6, 4, 5}, {1}, KeepDims::kNo, ReduceOp::kSum),
            "(6, 4, 5):(a, b, c) -> (6, 5):(a, c); b reduced by sum");
  EXPECT_EQ(reduced({6, 4}, {0, 1}, KeepDims::kNo, ReduceOp::kMax),
            "(6, 4):(a, b) -> ():(); a reduced by max; b reduced by max");
}

TEST(ReductionRule_Combined, KeptDims_HaveOneCellAndNoAxis) {
  EXPECT_EQ(reduced({6, 4}, {0}, KeepDims::kYes, ReduceOp::kMin), "(6, 4):(a, b) -> (1, 4):(-, b); a reduced by min");
}

TEST(ReductionRule_Combined, TensorOfNoDims_HasNothingToReduce) {
  EXPECT_EQ(reduced({}, {}, KeepDims::kNo, ReduceOp::kSum), "():() -> ():()");
}

TEST(ReductionRule_Combined, Pending_IsWhatTheReductionCommutesWith) {
  const auto pending = [](std::optional<ReduceOp> op) {
    return reduction_rule({3}, std::vector<int64_t>{0}, KeepDims::kNo, op).pending;
  };
  EXPECT_EQ(pending(ReduceOp::kSum), (Pending{Pending::Carriers::kEvery, kLinearOps}));
  EXPECT_EQ(pending(ReduceOp::kMax), (Pending{Pending::Carriers::kEvery, ReduceOps{ReduceOp::kMax}}));
  EXPECT_EQ(pending(ReduceOp::kMin), (Pending{Pending::Carriers::kEvery, ReduceOps{ReduceOp::kMin}}));
  EXPECT_EQ(pending(std::nullopt), Pending{});
}

TEST(ReductionRule_Whole, ReducedDims_GoAlongNoAxis) {
  EXPECT_EQ(reduced({6, 4, 5}, {1}, KeepDims::kNo, std::nullopt), "(6, 4, 5):(a, -, b) -> (6, 5):(a, b)");
  EXPECT_EQ(reduced({6, 4}, {0}, KeepDims::kYes, std::nullopt), "(6, 4):(-, a) -> (1, 4):(-, a)");
}

TEST(ReductionRule_NoCells, Extreme_Raises) {
  expect_error(kInvalid, "a tensor of shape (0, 4) has no cell along dim 0, of which none can be taken",
               [] { reduced({0, 4}, {0}, KeepDims::kNo, ReduceOp::kMax); });
  expect_error(kInvalid, "has no cell along dim 1", [] { reduced({3, 0}, {1}, KeepDims::kNo, ReduceOp::kMin); });
}

TEST(ReductionRule_NoCells, SumOrWhatTorchDefines_IsTaken) {
  EXPECT_EQ(reduced({0, 4}, {0}, KeepDims::kNo, ReduceOp::kSum), "(0, 4):(a, b) -> (4,):(b,); a reduced by sum");
  EXPECT_EQ(reduced({0, 4}, {0}, KeepDims::kNo, std::nullopt), "(0, 4):(-, a) -> (4,):(a,)");
  EXPECT_EQ(reduced({0, 4}, {1}, KeepDims::kNo, ReduceOp::kMax), "(0, 4):(a, b) -> (0,):(a,); b reduced by max");
}

TEST(ReductionRule_Along, WholeDims_StayInTheResult) {
  EXPECT_EQ(to_string(along_rule({6, 4, 5}, std::vector<int64_t>{1})), "(6, 4, 5):(a, -, b) -> (6, 4, 5):(a, -, b)");
  EXPECT_EQ(to_string(along_rule({6, 4}, std::vector<int64_t>{0, 1})), "(6, 4):(-, -) -> (6, 4):(-, -)");
  EXPECT_EQ(along_rule({6}, std::vector<int64_t>{0}).pending, Pending{});
}

TEST(ReductionRule_Normalization, LastDimsAndParameters_AreWhole) {
  EXPECT_EQ(to_string(normalization_rule({6, 4, 5}, {5}, 0)), "(6, 4, 5):(a, b, -) -> (6, 4, 5):(a, b, -)");
  EXPECT_EQ(to_string(normalization_rule({6, 4, 5}, {4, 5}, 2)),
            "(6, 4, 5):(a, -, -), (4, 5):(-, -), (4, 5):(-, -) -> (6, 4, 5):(a, -, -)");
}

TEST(ReductionRule_Normalization, ShapeThatIsNotTheEnd_Raises) {
  expect_error(kInvalid, "normalized_shape (4,) is not the end of the shape (6, 4, 5)",
               [] { normalization_rule({6, 4, 5}, {4}, 0); });
  expect_error(kInvalid, "normalized_shape (2, 6) is not the end of the shape (6,)",
               [] { normalization_rule({6}, {2, 6}, 0); });
  expect_error(kInvalid, "normalized_shape () is not the end", [] { normalization_rule({6}, {}, 0); });
}

}  // namespace
}  // namespace hyper_parallel
