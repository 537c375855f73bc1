#include "hyper_parallel/base/dims.h"

#include <gtest/gtest.h>

namespace hyper_parallel {
namespace {

/// 1, 2, .., rank.
Dims counting(size_t rank) {
  Dims dims(rank, 0);
  int64_t next = 1;
  for (int64_t& entry : dims) entry = next++;
  return dims;
}

bool lies_inside_object(const Dims& dims) {
  const auto* object = reinterpret_cast<const char*>(&dims);
  const auto* entries = reinterpret_cast<const char*>(dims.data());
  return entries >= object && entries < object + sizeof(dims);
}

/// Ranks on both sides of the inline limit.
const std::vector<size_t> kRanks = {0, 1, 4, Dims::kInlineRank, Dims::kInlineRank + 1, 40};

TEST(Dims, Default_IsOfRankZero) {
  const Dims none;
  EXPECT_EQ(none.size(), 0u);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.begin(), none.end());
}

TEST(Dims, HoldsWhatItWasMadeFrom) {
  EXPECT_EQ((Dims{6, 4, 8}).to_vector(), (std::vector<int64_t>{6, 4, 8}));
  EXPECT_EQ(Dims(3, 7).to_vector(), (std::vector<int64_t>{7, 7, 7}));
  EXPECT_EQ((Dims{3, 7}).to_vector(), (std::vector<int64_t>{3, 7}));
  for (const size_t rank : kRanks) {
    const std::vector<int64_t> values = counting(rank).to_vector();
    EXPECT_EQ(values.size(), rank);
    EXPECT_EQ(Dims(values).to_vector(), values);
    EXPECT_EQ(Dims(std::span<const int64_t>(values)).to_vector(), values);
  }
}

TEST(Dims, RanksUpToTheInlineLimit_AllocateNothing) {
  for (const size_t rank : kRanks) EXPECT_EQ(lies_inside_object(counting(rank)), rank <= Dims::kInlineRank) << rank;
}

TEST(Dims, EqualMeansSameRankAndEntries) {
  EXPECT_EQ((Dims{1, 2}), (Dims{1, 2}));
  EXPECT_NE((Dims{1, 2}), (Dims{1, 3}));
  EXPECT_NE((Dims{1, 2}), (Dims{1, 2, 0}));
  EXPECT_NE(Dims(Dims::kInlineRank, 1), Dims(Dims::kInlineRank + 1, 1));
  EXPECT_EQ(Dims{}, Dims(size_t{0}, 5));
}

TEST(Dims, Copy_IsIndependent) {
  for (const size_t rank : kRanks) {
    if (rank == 0) continue;
    Dims original = counting(rank);
    Dims copy = original;
    copy[0] = 100;
    EXPECT_EQ(original, counting(rank));
    original = copy;
    EXPECT_EQ(original[0], 100);
    copy[0] = 200;
    EXPECT_EQ(original[0], 100);
  }
}

TEST(Dims, Move_TakesTheEntriesAndLeavesNone) {
  for (const size_t rank : kRanks) {
    Dims source = counting(rank);
    Dims taken = std::move(source);
    EXPECT_EQ(taken, counting(rank));
    EXPECT_TRUE(source.empty()) << "a moved-from Dims that keeps its rank reads past its entries";
    const Dims copy_of_source = source;  // NOLINT(bugprone-use-after-move): what is tested
    EXPECT_TRUE(copy_of_source.empty());
    source = counting(2);
    EXPECT_EQ(source, (Dims{1, 2}));
  }
}

TEST(Dims, Assignment_ReplacesAnyRankByAnyRank) {
  for (const size_t from : kRanks) {
    for (const size_t to : kRanks) {
      Dims by_copy = counting(to);
      Dims by_move = counting(to);
      const Dims value = counting(from);
      by_copy = value;
      by_move = counting(from);
      EXPECT_EQ(by_copy, value);
      EXPECT_EQ(by_move, value);
    }
  }
}

TEST(Dims, AssignmentToItself_ChangesNothing) {
  for (const size_t rank : kRanks) {
    Dims dims = counting(rank);
    Dims& same = dims;
    dims = same;
    EXPECT_EQ(dims, counting(rank));
    dims = std::move(same);
    EXPECT_EQ(dims, counting(rank));
  }
}

}  // namespace
}  // namespace hyper_parallel
