#include "hyper_parallel/geometry/ragged_split.h"

#include <gtest/gtest.h>

#include <chrono>

#include "hyper_parallel/base/dims.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

RaggedSplit split(const std::vector<int64_t>& dims, std::vector<int64_t> units, const Dims& shape) {
  return RaggedSplit(RaggedShard(dims, std::move(units)), shape);
}

std::vector<Interval> owned_by_all(const RaggedSplit& ragged) {
  std::vector<Interval> owned;
  for (int64_t rank = 0; rank < ragged.placement().rank_count(); ++rank) owned.push_back(ragged.owned(rank));
  return owned;
}

using Intervals = std::vector<Interval>;

TEST(RaggedSplit, WorkedExampleOfTheSpecification) {
  const RaggedSplit ragged = split({0, 1}, {1, 2}, {6, 4, 8});
  EXPECT_EQ(owned_by_all(ragged), (Intervals{{0, 64}, {64, 192}}));
  EXPECT_EQ(ragged.elements_per_unit(), 64);
  EXPECT_EQ(ragged.cut(2), 192);
}

TEST(RaggedSplit, Case01_TenRowsOfTwo) {
  EXPECT_EQ(owned_by_all(split({0}, {3, 3, 3, 1}, {10, 2})), (Intervals{{0, 6}, {6, 12}, {12, 18}, {18, 20}}));
}

TEST(RaggedSplit, Case02_FourteenRowsOfTwo) {
  EXPECT_EQ(owned_by_all(split({0}, {2, 3, 4, 5}, {14, 2})), (Intervals{{0, 4}, {4, 10}, {10, 18}, {18, 28}}));
}

TEST(RaggedSplit, Case05_RankOfNoUnits_IsEmptyAtItsCut) {
  EXPECT_EQ(owned_by_all(split({0}, {0, 3, 0, 1}, {4})), (Intervals{{0, 0}, {0, 3}, {3, 3}, {3, 4}}));
}

TEST(RaggedSplit, Case08_AllUnitsOnTheSecondRank) {
  EXPECT_EQ(owned_by_all(split({0}, {0, 4}, {4})), (Intervals{{0, 0}, {0, 4}}));
}

TEST(RaggedSplit, Case25_EmptySuffix_GivesEveryRankNothing) {
  EXPECT_EQ(owned_by_all(split({0}, {1, 1}, {0, 4})), (Intervals{{0, 0}, {0, 0}}));
  EXPECT_EQ(owned_by_all(split({0}, {1, 1}, {4, 0})), (Intervals{{0, 0}, {0, 0}}));
}

TEST(RaggedSplit, Case34_ZeroPrefixCells_GiveEveryRankNothing) {
  EXPECT_EQ(owned_by_all(split({0}, {1, 2}, {0})), (Intervals{{0, 0}, {0, 0}}));
  EXPECT_EQ(owned_by_all(split({0, 1}, {1, 2, 0}, {2, 0, 3})), (Intervals{{0, 0}, {0, 0}, {0, 0}}));
}

TEST(RaggedSplit, Case34_DimsLongerThanTheTensor_Raise) {
  EXPECT_EQ(error_of([] { split({0}, {1, 1}, {}); }),
            "InvalidArgument: RaggedShard dims (0,) are more than the tensor's 0 dims");
  EXPECT_EQ(error_of([] { split({0, 1}, {1, 1}, {4}); }),
            "InvalidArgument: RaggedShard dims (0, 1) are more than the tensor's 1 dims");
}

TEST(RaggedSplit, Case38_UnitsOfSingleCells) {
  EXPECT_EQ(owned_by_all(split({0, 1, 2}, {7, 46, 7}, {3, 4, 5})), (Intervals{{0, 7}, {7, 53}, {53, 60}}));
  EXPECT_EQ(owned_by_all(split({0, 1}, {0, 3, 1, 2}, {3, 4, 2})), (Intervals{{0, 0}, {0, 12}, {12, 16}, {16, 24}}));
}

TEST(RaggedSplit, EmbeddingOfAModel_IsCutAtRows) {
  EXPECT_EQ(owned_by_all(split({0}, {3, 0, 2, 1}, {30522, 384})),
            (Intervals{{0, 5860224}, {5860224, 5860224}, {5860224, 9767040}, {9767040, 11720448}}));
  EXPECT_EQ(
      error_of([] { split({0}, {3, 0, 1, 1}, {30522, 384}); }),
      "InvalidArgument: RaggedShard local_units sum to 5 but dims (0,) of shape (30522, 384) have 30522 cells, which "
      "must be a multiple of it");
}

TEST(RaggedSplit, PrefixCellsNotDivisible_RaisesAlsoWhereTheSuffixIsEmpty) {
  EXPECT_EQ(
      error_of([] { split({0}, {1, 1}, {3, 0}); }),
      "InvalidArgument: RaggedShard local_units sum to 2 but dims (0,) of shape (3, 0) have 3 cells, which must be a "
      "multiple of it");
}

TEST(RaggedSplit, BeyondInt64_Raises) {
  const int64_t huge = int64_t{1} << 62;
  EXPECT_EQ(error_of([&] { split({0, 1}, {1, 1}, {huge, 4}); }),
            "InvalidArgument: 4611686018427387904 * 4 does not fit in int64");
  EXPECT_EQ(error_of([&] { split({0}, {1}, {huge, 4}); }),
            "InvalidArgument: 4611686018427387904 * 4 does not fit in int64");
  EXPECT_EQ(error_of([&] { split({0}, {huge / 2, huge / 2}, {huge, 4}); }),
            "InvalidArgument: 4 * 4611686018427387904 does not fit in int64");
}

TEST(RaggedSplit, LargestTensor_DoesNotOverflow) {
  EXPECT_EQ(owned_by_all(split({0}, {INT64_MAX - 5, 5}, {INT64_MAX})),
            (Intervals{{0, INT64_MAX - 5}, {INT64_MAX - 5, INT64_MAX}}));
  EXPECT_EQ(owned_by_all(split({0}, {1, 1}, {int64_t{1} << 62, 4, 0})), (Intervals{{0, 0}, {0, 0}}));
}

TEST(RaggedSplit, Owners_AreTheSmallestRangeThatHoldsEveryOwner) {
  for (const auto& units : std::vector<std::vector<int64_t>>{
           {1, 2, 3}, {0, 3, 0, 1, 2}, {6, 0, 0}, {0, 0, 6}, {0, 1, 0, 0, 5, 0}, {6}, {1, 1, 1, 1, 1, 1}}) {
    const RaggedSplit ragged = split({0}, units, {6, 2});
    for (int64_t begin = 0; begin <= 12; ++begin) {
      for (int64_t end = begin; end <= 12; ++end) {
        Interval expected{0, 0};
        for (int64_t rank = 0; rank < ragged.placement().rank_count(); ++rank) {
          if (intersect(ragged.owned(rank), {begin, end}).empty()) continue;
          if (expected.empty()) expected.begin = rank;
          expected.end = rank + 1;
        }
        EXPECT_EQ(ragged.owners({begin, end}), expected) << tuple_text(units) << " [" << begin << ", " << end << ")";
      }
    }
  }
}

TEST(RaggedSplit, Owners_OfAnEmptyTensor_AreNone) { EXPECT_TRUE(split({0}, {1, 1}, {0, 4}).owners({0, 0}).empty()); }

TEST(RaggedSplit, Owners_Of100000Ranks_TakeASearchNotAWalk) {
  std::vector<int64_t> units(100'000, 1);
  for (size_t rank = 0; rank < units.size(); rank += 3) units[rank] = 0;
  const RaggedShard placement({0}, units);
  const RaggedSplit ragged(placement, Dims{placement.total_units(), 4});
  const auto start = std::chrono::steady_clock::now();
  for (int64_t rank = 0; rank < 100'000; ++rank) {
    const Interval owned = ragged.owned(rank);
    if (owned.empty()) continue;
    ASSERT_EQ(ragged.owners(owned), (Interval{rank, rank + 1}));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(SameSplit, ComparesWhatIsOwnedWhateverDimsAndUnits) {
  EXPECT_TRUE(same_split(split({0}, {1, 3}, {8}), split({0}, {1, 3}, {8})));
  EXPECT_TRUE(same_split(split({0}, {1, 3}, {8}), split({0}, {2, 6}, {8})));
  EXPECT_TRUE(same_split(split({0}, {1, 1}, {2, 2}), split({0, 1}, {2, 2}, {2, 2})));
  EXPECT_TRUE(same_split(split({0}, {0, 4}, {4, 3}), split({0, 1}, {0, 1}, {4, 3})));
  EXPECT_FALSE(same_split(split({0}, {1, 3}, {8}), split({0}, {3, 1}, {8})));
  EXPECT_FALSE(same_split(split({0}, {1, 1}, {2}), split({0}, {1, 1}, {4})));
  EXPECT_FALSE(same_split(split({0}, {1, 1}, {2}), split({0}, {1, 1, 0}, {2})));
}

TEST(SameSplit, OfAnEmptyTensor_IsAlwaysTheSame) {
  EXPECT_TRUE(same_split(split({0}, {1, 3}, {0}), split({0}, {3, 1}, {0})));
}

}  // namespace
}  // namespace hyper_parallel
