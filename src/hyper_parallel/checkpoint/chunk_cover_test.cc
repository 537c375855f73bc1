#include "hyper_parallel/checkpoint/chunk_cover.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "hyper_parallel/geometry/interval_boxes.h"

namespace hyper_parallel {
namespace {

std::string fault(const Dims& shape, const std::vector<Box>& boxes) {
  const auto box = [&boxes](int64_t i) { return boxes[static_cast<size_t>(i)]; };
  return tiling_fault(shape, static_cast<int64_t>(boxes.size()), box).value_or("none");
}

// The boxes of consecutive intervals of the flat tensor.
std::vector<Box> ragged_boxes(const Dims& shape, const std::vector<int64_t>& ends) {
  std::vector<Box> boxes;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (const IntervalBox& part : interval_to_boxes(shape, {begin, end})) boxes.push_back(part.box);
    begin = end;
  }
  return boxes;
}

TEST(TilingFault, WholeTensorInOneBox_Tiles) {
  EXPECT_EQ(fault({3, 4}, {{{0, 0}, {3, 4}}}), "none");
  EXPECT_EQ(fault({}, {{{}, {}}}), "none");
}

TEST(TilingFault, TensorWithoutCells_HasNoChunk) { EXPECT_EQ(fault({0, 4}, {}), "none"); }

TEST(TilingFault, NoBoxes_LeaveTheFirstCell) {
  EXPECT_EQ(fault({3, 4}, {}), "no chunk holds cell (0, 0)");
  EXPECT_EQ(fault({}, {}), "no chunk holds cell ()");
}

TEST(TilingFault, Overlap_NamesBothChunks) {
  EXPECT_EQ(fault({3, 4}, {{{0, 0}, {2, 4}}, {{1, 0}, {2, 4}}}), "chunks (0, 0)+(2, 4) and (1, 0)+(2, 4) overlap");
  EXPECT_EQ(fault({}, {{{}, {}}, {{}, {}}}), "chunks ()+() and ()+() overlap");
}

TEST(TilingFault, Hole_NamesItsFirstCell) {
  EXPECT_EQ(fault({4, 2}, {{{0, 0}, {3, 2}}}), "no chunk holds cell (3, 0)");
  EXPECT_EQ(fault({3, 3}, {{{0, 0}, {1, 3}}, {{1, 0}, {1, 1}}, {{1, 2}, {1, 1}}, {{2, 0}, {1, 3}}}),
            "no chunk holds cell (1, 1)");
}

TEST(TilingFault, OverlapAndHoleOfOneSize_AreNotTakenForATiling) {
  // As many cells as the shape: a count alone would not tell.
  EXPECT_EQ(fault({4}, {{{0}, {2}}, {{1}, {2}}}), "chunks (0,)+(2,) and (1,)+(2,) overlap");
  EXPECT_EQ(fault({2, 2}, {{{0, 1}, {2, 1}}, {{1, 0}, {1, 2}}}), "no chunk holds cell (0, 0)");
}

TEST(TilingFault, EqualBoxes_Overlap) {
  EXPECT_EQ(fault({2}, {{{0}, {2}}, {{0}, {2}}}), "chunks (0,)+(2,) and (0,)+(2,) overlap");
  EXPECT_EQ(fault({2}, {{{0}, {2}}, {{0}, {2}}, {{0}, {2}}}), "chunks (0,)+(2,) and (0,)+(2,) overlap");
}

TEST(TilingFault, StaircaseOfRaggedBoxes_Tiles_AndWithoutOneDoesNot) {
  const Dims shape{6, 4, 8};
  std::vector<Box> boxes = ragged_boxes(shape, {7, 7, 53, 100, 101, 192});
  EXPECT_EQ(fault(shape, boxes), "none");
  for (size_t i = 0; i < boxes.size(); ++i) {
    std::vector<Box> without = boxes;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(fault(shape, without).find("no chunk holds cell"), std::string::npos);
  }
}

TEST(TilingFault, BoxesThatNoCutParts_Tile) {
  // A pinwheel: no straight line separates its boxes.
  const std::vector<Box> pinwheel = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_EQ(fault({3, 3}, pinwheel), "none");
  EXPECT_EQ(fault({3, 3}, {pinwheel.begin(), pinwheel.end() - 1}), "no chunk holds cell (1, 1)");
}

TEST(TilingFault, BoxesInAnyOrder_Tile) {
  EXPECT_EQ(fault({2, 2}, {{{1, 1}, {1, 1}}, {{0, 0}, {1, 1}}, {{1, 0}, {1, 1}}, {{0, 1}, {1, 1}}}), "none");
}

TEST(TilingFault, LargestSizes_DoNotOverflow) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(fault({kMax}, {{{0}, {kMax - 1}}, {{kMax - 1}, {1}}}), "none");
  EXPECT_EQ(fault({kMax}, {{{0}, {kMax - 1}}}), "no chunk holds cell (9223372036854775806,)");
  EXPECT_EQ(fault({kMax}, {{{1}, {kMax - 1}}}), "no chunk holds cell (0,)");
}

TEST(TilingFault, ManyDims_CostNoMoreThanTheyAre) {
  // Each further box is cut in one more dim, so corners of boxes would be 2^60.
  constexpr size_t kDims = 60;
  std::vector<Box> boxes;
  Box rest = whole_box(Dims(kDims, 2));
  for (size_t dim = 0; dim < kDims; ++dim) {
    rest.sizes[dim] = 1;
    boxes.push_back(rest);
    rest.offsets[dim] = 1;
  }
  EXPECT_NE(fault(Dims(kDims, 2), boxes).find("no chunk holds cell (1, 1, 1, 1, "), std::string::npos);
  boxes.push_back(rest);
  EXPECT_EQ(fault(Dims(kDims, 2), boxes), "none");
}

TEST(TilingFault, HundredThousandBoxesAlongAnyDim_Tile) {
  constexpr int64_t kCount = 100'000;
  for (size_t dim = 0; dim < 3; ++dim) {
    Dims shape(3, 4);
    shape[dim] = kCount;
    const auto slice = [&](int64_t i) {
      Box box = whole_box(shape);
      box.offsets[dim] = i;
      box.sizes[dim] = 1;
      return box;
    };
    EXPECT_EQ(tiling_fault(shape, kCount, slice), std::nullopt);
    EXPECT_NE(tiling_fault(shape, kCount - 1, slice), std::nullopt);
    const auto doubled = [&](int64_t i) { return slice(i == 77'777 ? 77'776 : i); };
    EXPECT_NE(tiling_fault(shape, kCount, doubled).value_or("none").find(" overlap"), std::string::npos);
  }
}

TEST(TilingFault, Grid_Tiles_AndWithTwoCellsSwappedForOneTwiceDoesNot) {
  const auto cell = [](int64_t i) { return Box{{i / 300 * 2, i % 300 * 3}, {2, 3}}; };
  EXPECT_EQ(tiling_fault({600, 900}, 90'000, cell), std::nullopt);
  const auto doubled = [&](int64_t i) { return cell(i == 500 ? 40'000 : i); };
  EXPECT_EQ(tiling_fault({600, 900}, 90'000, doubled), "no chunk holds cell (2, 600)");
}

}  // namespace
}  // namespace hyper_parallel
