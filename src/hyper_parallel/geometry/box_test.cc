#include "hyper_parallel/geometry/box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "tests/support/cells.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

TEST(Box, NumelIsTheProductOfSizes) {
  EXPECT_EQ((Box{{1, 2}, {3, 4}}).numel(), 12);
  EXPECT_EQ((Box{{1, 2}, {3, 0}}).numel(), 0);
  EXPECT_TRUE((Box{{1, 2}, {3, 0}}).empty());
  EXPECT_FALSE((Box{{1, 2}, {3, 1}}).empty());
}

TEST(Box, OfRankZero_IsOneCell) {
  EXPECT_EQ(Box{}.numel(), 1);
  EXPECT_EQ(whole_box({}), Box{});
  EXPECT_EQ(intersect(Box{}, Box{}), Box{});
}

TEST(Box, RangeIsHalfOpen) { EXPECT_EQ((Box{{1, 2}, {3, 4}}).range(1), (Interval{2, 6})); }

TEST(Box, WholeBox_StartsAtTheOrigin) { EXPECT_EQ(whole_box({3, 0, 5}), (Box{{0, 0, 0}, {3, 0, 5}})); }

TEST(Box, Text_IsOffsetsAndSizes) {
  EXPECT_EQ(to_string(Box{{0, 1, 2}, {1, 1, 3}}), "(0, 1, 2)+(1, 1, 3)");
  EXPECT_EQ(to_string(Box{}), "()+()");
}

TEST(Box, Numel_BeyondInt64_Raises) {
  EXPECT_EQ(error_of([] { Box({{0, 0}, {int64_t{1} << 62, 4}}).numel(); }),
            "InvalidArgument: 4611686018427387904 * 4 does not fit in int64");
  EXPECT_EQ((Box{{0, 0, 0}, {int64_t{1} << 62, 4, 0}}).numel(), 0);
}

TEST(Box, Intersect_HoldsExactlyTheCommonCells) {
  const Dims shape{3, 4};
  std::vector<Box> boxes;
  for (int64_t i = 0; i <= 3; ++i) {
    for (int64_t height = 0; i + height <= 3; ++height) {
      for (int64_t j = 0; j <= 4; ++j) {
        for (int64_t width = 0; j + width <= 4; ++width) boxes.push_back({{i, j}, {height, width}});
      }
    }
  }
  for (const Box& a : boxes) {
    for (const Box& b : boxes) {
      Cells common;
      std::ranges::set_intersection(cells_of(a, shape), cells_of(b, shape), std::back_inserter(common));
      const auto both = intersect(a, b);
      EXPECT_EQ(both.has_value(), !common.empty()) << to_string(a) << " and " << to_string(b);
      if (both) {
        EXPECT_EQ(cells_of(*both, shape), common) << to_string(a) << " and " << to_string(b);
      }
    }
  }
}

TEST(RowMajorStrides, LastDimIsDense) {
  EXPECT_EQ(row_major_strides({3, 4, 5}), (Dims{20, 5, 1}));
  EXPECT_EQ(row_major_strides({7}), Dims{1});
  EXPECT_EQ(row_major_strides({}), Dims{});
}

TEST(RowMajorStrides, EmptyDim_CountsAsOne) {
  EXPECT_EQ(row_major_strides({3, 0, 5}), (Dims{5, 5, 1}));
  EXPECT_EQ(row_major_strides({0, int64_t{1} << 62}), (Dims{int64_t{1} << 62, 1}));
}

TEST(RowMajorStrides, BeyondInt64_Raise) {
  EXPECT_EQ(error_of([] { row_major_strides({0, int64_t{1} << 62, 4}); }),
            "InvalidArgument: 4 * 4611686018427387904 does not fit in int64");
}

}  // namespace
}  // namespace hyper_parallel
