#include "benchmarks/paired_statistics.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace hyper_parallel::benchmarks {
namespace {

TEST(PairedStatistics_Quartiles, EvenCount_AreInterpolated) {
  EXPECT_EQ(quartiles({4, 1, 3, 2}), (Quartiles{1.75, 2.5, 3.25}));
}

TEST(PairedStatistics_Quartiles, OddCount_AreOrderStatistics) {
  EXPECT_EQ(quartiles({50, 10, 40, 20, 30}), (Quartiles{20, 30, 40}));
}

TEST(PairedStatistics_Quartiles, OneValue_IsAllThree) { EXPECT_EQ(quartiles({7}), (Quartiles{7, 7, 7})); }

TEST(PairedStatistics_Quartiles, NoValues_Raise) {
  expect_error(ErrorCode::kInvalidArgument, "quartiles: there are no values", [] { quartiles({}); });
}

TEST(PairedStatistics_Ratios, DriftThatBothSidesShare_CancelsInEachPair) {
  // The machine slows down fourfold on the way: the medians of the sides say nothing, the pairs say 2.
  EXPECT_EQ(ratio_quartiles({2, 4, 8}, {1, 2, 4}), (Quartiles{2, 2, 2}));
}

TEST(PairedStatistics_Ratios, OneDisturbedPair_LeavesTheMedian) {
  EXPECT_EQ(ratio_quartiles({1, 1, 1, 90, 1}, {2, 2, 2, 2, 2}).median, 0.5);
}

TEST(PairedStatistics_Ratios, UnlikeCounts_Raise) {
  expect_error(ErrorCode::kInvalidArgument, "ratio_quartiles: 2 numerators but 1 denominators",
               [] { ratio_quartiles({1, 2}, {1}); });
}

TEST(PairedStatistics_Goal, Faster_CountsHowOftenOursFitsIntoTheBaseline) {
  const PairedTimes times{{1, 1, 1}, {3, 4, 5}, {3, 4, 5}};
  EXPECT_EQ(goal_ratio(faster(4), times).median, 4);
  EXPECT_TRUE(reaches(faster(4), 4));
  EXPECT_FALSE(reaches(faster(4), 3.99));
}

TEST(PairedStatistics_Goal, AtMost_CountsHowMuchLongerOursTakes) {
  const PairedTimes times{{3, 4, 5}, {2, 2, 2}, {2, 2, 2}};
  EXPECT_EQ(goal_ratio(at_most(1.15), times).median, 2);
  EXPECT_TRUE(reaches(at_most(1.15), 1.15));
  EXPECT_FALSE(reaches(at_most(1.15), 1.16));
}

TEST(PairedStatistics_Goal, Equal_IsReachedByNothingElse) {
  EXPECT_TRUE(reaches(equal_to_bound(), 1));
  EXPECT_FALSE(reaches(equal_to_bound(), 0.999));
  EXPECT_FALSE(reaches(equal_to_bound(), 1.001));
}

}  // namespace
}  // namespace hyper_parallel::benchmarks
