#include "hyper_parallel/geometry/region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "hyper_parallel/base/text.h"
#include "tests/support/cells.h"

namespace hyper_parallel {
namespace {

/// Every run of every box of a tensor of `shape` (rank 3), the empty ones included.
std::vector<Region> all_regions(const Dims& shape) {
  std::vector<std::vector<Interval>> ranges(shape.size());
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    for (int64_t begin = 0; begin < shape[dim]; ++begin) {
      for (int64_t end = begin + 1; end <= shape[dim]; ++end) ranges[dim].push_back({begin, end});
    }
  }
  std::vector<Region> regions;
  for (const Interval i : ranges[0]) {
    for (const Interval j : ranges[1]) {
      for (const Interval k : ranges[2]) {
        const Box box{{i.begin, j.begin, k.begin}, {i.size(), j.size(), k.size()}};
        for (int64_t begin = 0; begin <= box.numel(); ++begin) {
          for (int64_t end = begin; end <= box.numel(); ++end) regions.push_back({box, {begin, end}});
        }
      }
    }
  }
  return regions;
}

/// The region's cells in the order of its local storage.
Cells cells_of(const Region& region, const Dims& shape) {
  const Cells box = cells_of(region.box, shape);
  return {box.begin() + region.flat.begin, box.begin() + region.flat.end};
}

std::string text(const Region& region) {
  return str_cat(to_string(region.box), "[", region.flat.begin, ":", region.flat.end, "]");
}

/// The cells that a piece takes out of the local storage `local`.
Cells taken(const StridedView& view, const Cells& local) {
  Cells cells;
  for (const int64_t element : elements_of(view)) cells.push_back(local.at(static_cast<size_t>(element)));
  return cells;
}

/// Both sides of each piece are the same cells, and all pieces together are the common cells, each once.
void expect_exact_intersection(const Region& a, const Region& b, const Dims& shape) {
  SCOPED_TRACE(text(a) + " and " + text(b));
  const Cells local_a = cells_of(a, shape);
  const Cells local_b = cells_of(b, shape);
  Cells moved;
  for (const Piece& piece : intersect(a, b, shape)) {
    const Cells cells = taken(piece.in_a, local_a);
    EXPECT_EQ(cells, taken(piece.in_b, local_b));
    EXPECT_EQ(piece.in_a.numel(), piece.in_b.numel());
    moved.insert(moved.end(), cells.begin(), cells.end());
  }
  Cells common;
  std::ranges::set_intersection(local_a, local_b, std::back_inserter(common));
  EXPECT_EQ(overlap_numel(a, b, shape), static_cast<int64_t>(common.size()));
  std::ranges::sort(moved);
  EXPECT_EQ(moved, common);
}

TEST(Region, OfABox_IsAllOfIt) {
  const Region region = region_of({{1, 2}, {3, 4}});
  EXPECT_EQ(region.flat, (Interval{0, 12}));
  EXPECT_TRUE(region.is_whole_box());
  EXPECT_EQ(region.numel(), 12);
  EXPECT_TRUE(region_of({{1, 2}, {3, 0}}).empty());
}

TEST(Region, RunOfABox_IsNotWhole) {
  const Region region{{{0, 0}, {3, 4}}, {2, 5}};
  EXPECT_FALSE(region.is_whole_box());
  EXPECT_FALSE(region.empty());
  EXPECT_EQ(region.numel(), 3);
}

TEST(FlatRun, OfARaggedShare_IsItsInterval) {
  EXPECT_EQ(flat_run({whole_box({3, 4, 5}), {7, 53}}, {3, 4, 5}), (Interval{7, 53}));
}

TEST(FlatRun, OfRows_IsARun_OfColumnsIsNone) {
  EXPECT_EQ(flat_run(region_of({{1, 0}, {2, 4}}), {5, 4}), (Interval{4, 12}));
  EXPECT_EQ(flat_run(region_of({{0, 1}, {5, 2}}), {5, 4}), std::nullopt);
  EXPECT_EQ(flat_run(region_of({{2, 1}, {1, 2}}), {5, 4}), (Interval{9, 11})) << "part of one row";
}

TEST(FlatHull, OfColumns_ReachesFromTheFirstCellToTheLast) {
  EXPECT_EQ(flat_hull(region_of({{0, 1}, {5, 2}}), {5, 4}), (Interval{1, 19}));
}

TEST(FlatRunAndHull, OfEmptyRegions_AreEmpty) {
  EXPECT_EQ(flat_run(region_of({{5, 0}, {0, 4}}), {5, 4}), (Interval{0, 0}));
  EXPECT_EQ(flat_hull(region_of({{5, 0}, {0, 4}}), {5, 4}), (Interval{0, 0}));
  EXPECT_EQ(flat_run({whole_box({4}), {3, 3}}, {4}), (Interval{0, 0}));
}

TEST(FlatRunAndHull, OfAZeroDimTensor_AreItsCell) {
  EXPECT_EQ(flat_run(region_of(whole_box({})), {}), (Interval{0, 1}));
  EXPECT_EQ(flat_hull(region_of(whole_box({})), {}), (Interval{0, 1}));
}

TEST(FlatRunAndHull, OfEveryRegion_AreExact) {
  const Dims shape{2, 3, 3};
  for (const Region& region : all_regions(shape)) {
    if (region.empty()) continue;
    const Cells cells = cells_of(region, shape);
    const Interval hull{cells.front(), cells.back() + 1};
    ASSERT_EQ(flat_hull(region, shape), hull) << text(region);
    const auto run = hull.size() == region.numel() ? std::optional(hull) : std::nullopt;
    ASSERT_EQ(flat_run(region, shape), run) << text(region);
  }
}

TEST(RegionBoxes, OfEveryRegion_TileItInStorageOrder) {
  const Dims shape{2, 3, 3};
  for (const Region& region : all_regions(shape)) {
    Cells laid_out;
    const auto boxes = region_boxes(region);
    ASSERT_LE(boxes.size(), 5u);
    for (const Box& box : boxes) {
      const Cells cells = cells_of(box, shape);
      laid_out.insert(laid_out.end(), cells.begin(), cells.end());
    }
    ASSERT_EQ(laid_out, cells_of(region, shape)) << text(region);
  }
}

TEST(RegionBoxes, OfAWholeBox_IsThatBox) {
  const Box box{{1, 1, 1}, {1, 2, 2}};
  EXPECT_EQ(region_boxes(region_of(box)), std::vector<Box>{box});
  EXPECT_EQ(region_boxes(region_of(Box{})), std::vector<Box>{Box{}});
  EXPECT_TRUE(region_boxes(region_of({{0, 0}, {0, 4}})).empty());
}

TEST(RegionIntersect, OfRuns_IsOnePieceOfTwoRuns) {
  const Dims shape{6, 4};
  const Region a{whole_box(shape), {3, 15}};
  const Region rows = region_of({{2, 0}, {3, 4}});
  EXPECT_EQ(intersect(a, rows, shape), (std::vector<Piece>{{run_view(5, 7), run_view(0, 7)}}));
  EXPECT_TRUE(intersect(a, region_of({{4, 0}, {2, 4}}), shape).empty());
}

TEST(RegionIntersect, OfRowsAndColumns_IsABlockInBoth) {
  const Dims shape{4, 6};
  const Region rows = region_of({{0, 0}, {2, 6}});
  const Region columns = region_of({{0, 3}, {4, 3}});
  EXPECT_EQ(intersect(rows, columns, shape), (std::vector<Piece>{{{3, {2, 3}, {6, 1}}, run_view(0, 6)}}));
}

TEST(RegionIntersect, OfRandomRegions_IsExact) {
  const Dims shape{2, 3, 3};
  const std::vector<Region> regions = all_regions(shape);
  std::mt19937 random(20240317);
  std::uniform_int_distribution<size_t> pick(0, regions.size() - 1);
  for (int i = 0; i < 5000 && !testing::Test::HasFailure(); ++i) {
    expect_exact_intersection(regions[pick(random)], regions[pick(random)], shape);
  }
}

TEST(RegionIntersect, OfAZeroDimTensor_IsItsCell) {
  const Region cell = region_of(whole_box({}));
  EXPECT_EQ(intersect(cell, cell, {}), (std::vector<Piece>{{run_view(0, 1), run_view(0, 1)}}));
}

TEST(RegionIntersect, OfAnEmptyRegion_IsNothing) {
  const Dims shape{5, 4};
  const Region whole = region_of(whole_box(shape));
  EXPECT_TRUE(intersect(whole, region_of({{5, 0}, {0, 4}}), shape).empty());
  EXPECT_TRUE(intersect({whole_box(shape), {3, 3}}, whole, shape).empty());
  EXPECT_EQ(overlap_numel(whole, {whole_box(shape), {3, 3}}, shape), 0);
}

}  // namespace
}  // namespace hyper_parallel
