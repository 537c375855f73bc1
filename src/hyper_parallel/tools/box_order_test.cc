#include "hyper_parallel/tools/box_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/cells.h"

namespace hyper_parallel {
namespace {

void expect_counts(const Box& box, const Dims& shape) {
  const Cells cells = cells_of(box, shape);
  for (int64_t flat = 0; flat <= static_cast<int64_t>(all_cells(shape).size()); ++flat) {
    const auto expected = std::ranges::count_if(cells, [flat](int64_t cell) { return cell < flat; });
    EXPECT_EQ(cells_before(box, shape, flat), expected) << to_string(box) << " before " << flat;
  }
}

TEST(CellsBefore, EveryBoxOfASmallTensor_AgreesWithCounting) {
  const Dims shape = {3, 2, 4};
  for (int64_t x = 0; x < 3; ++x) {
    for (int64_t y = 0; y < 2; ++y) {
      for (int64_t z = 0; z < 4; ++z) {
        expect_counts({{x, y, z}, {3 - x, 2 - y, 4 - z}}, shape);
        expect_counts({{0, 0, 0}, {x + 1, y + 1, z + 1}}, shape);
      }
    }
  }
}

TEST(CellsBefore, FlatTensorAndOneCell_AreCountedToo) {
  expect_counts({{2}, {3}}, {7});
  expect_counts({{}, {}}, {});
  expect_counts({{0, 0}, {1, 1}}, {1, 1});
}

}  // namespace
}  // namespace hyper_parallel
