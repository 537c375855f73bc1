#include "hyper_parallel/geometry/strided_view.h"

#include <gtest/gtest.h>

#include "hyper_parallel/geometry/box.h"
#include "tests/support/cells.h"

namespace hyper_parallel {
namespace {

TEST(StridedView, Run_IsContiguous) {
  const StridedView run = run_view(5, 12);
  EXPECT_TRUE(run.is_contiguous());
  EXPECT_EQ(run.numel(), 12);
  EXPECT_EQ(run, (StridedView{5, {12}, {1}}));
}

TEST(StridedView, WholeRows_BecomeOneRun) { EXPECT_EQ(collapsed_view(20, {2, 4, 5}, {20, 5, 1}), run_view(20, 40)); }

TEST(StridedView, DimsOfSizeOne_AreLeftOut) {
  EXPECT_EQ(collapsed_view(7, {1, 2, 1, 3}, {100, 12, 9, 1}), (StridedView{7, {2, 3}, {12, 1}}));
  EXPECT_EQ(collapsed_view(7, {1, 1}, {5, 3}), run_view(7, 1)) << "one cell is a run of one";
  EXPECT_EQ(collapsed_view(7, {}, {}), run_view(7, 1));
}

TEST(StridedView, OnlyDimsThatContinueOneAnother_AreMerged) {
  EXPECT_EQ(collapsed_view(0, {2, 3, 4}, {24, 4, 1}), (StridedView{0, {2, 12}, {24, 1}}));
  EXPECT_EQ(collapsed_view(0, {2, 3, 2}, {12, 4, 1}), (StridedView{0, {6, 2}, {4, 1}}));
  EXPECT_EQ(collapsed_view(0, {2, 3}, {1, 2}), (StridedView{0, {2, 3}, {1, 2}})) << "a transposed block stays one";
}

TEST(StridedView, StridedColumn_IsNotContiguous) {
  const StridedView column = collapsed_view(3, {4, 1}, {5, 1});
  EXPECT_EQ(column, (StridedView{3, {4}, {5}}));
  EXPECT_FALSE(column.is_contiguous());
  EXPECT_EQ(column.numel(), 4);
}

TEST(StridedView, Collapsing_NamesTheSameElementsInTheSameOrder) {
  const Dims shape{3, 2, 4};
  const Dims strides = row_major_strides(shape);
  for (int64_t i = 1; i <= 3; ++i) {
    for (int64_t j = 1; j <= 2; ++j) {
      for (int64_t k = 1; k <= 4; ++k) {
        const StridedView collapsed = collapsed_view(1, {i, j, k}, strides);
        EXPECT_EQ(elements_of(collapsed), elements_of({1, {i, j, k}, strides})) << to_string(collapsed);
        EXPECT_EQ(collapsed.numel(), i * j * k);
      }
    }
  }
}

TEST(StridedView, Text_IsASliceOrABlock) {
  EXPECT_EQ(to_string(run_view(5, 12)), "[5:17]");
  EXPECT_EQ(to_string(StridedView{5, {2, 3}, {12, 1}}), "5+(2, 3)*(12, 1)");
}

}  // namespace
}  // namespace hyper_parallel
