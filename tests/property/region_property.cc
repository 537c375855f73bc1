// Intervals, boxes and regions, against walks over all cells.

#include <algorithm>
#include <numeric>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/geometry/interval_boxes.h"
#include "hyper_parallel/geometry/region.h"
#include "tests/property/cells.h"
#include "tests/property/random_cases.h"

namespace hyper_parallel::test {
namespace {

struct RegionPair {
  Dims shape;
  Region a;
  Region b;
};

std::ostream& operator<<(std::ostream& out, const RegionPair& pair) {
  out << "shape " << tuple_text(pair.shape);
  for (const Region* region : {&pair.a, &pair.b}) {
    out << "; " << to_string(region->box) << "[" << region->flat.begin << ":" << region->flat.end << "]";
  }
  return out;
}

RegionPair draw_regions() {
  const Dims shape = draw_shape();
  Region a = draw_region(shape);
  return {shape, std::move(a), draw_region(shape)};
}

/// Fails unless the boxes are few, lie in order, and hold the interval's cells and no other.
template <typename Require>
void check_boxes(const Dims& shape, Interval interval, const Require& require) {
  Cells found;
  const std::vector<IntervalBox> boxes = interval_to_boxes(shape, interval);
  for (const IntervalBox& part : boxes) {
    require(part.flat.begin == interval.begin + static_cast<int64_t>(found.size()));
    const Cells cells = cells_of(part.box, shape);
    require(!cells.empty() && std::cmp_equal(cells.size(), part.flat.size()));
    found.insert(found.end(), cells.begin(), cells.end());
  }
  Cells wanted(static_cast<size_t>(interval.size()));
  std::iota(wanted.begin(), wanted.end(), interval.begin);
  require(found == wanted);
  require(boxes.size() <= std::max<size_t>(2 * shape.size(), 2) - 1);
}

TEST(IntervalBoxes, OfEveryIntervalOfEveryShapeUpTo444_ReproduceItInOrder) {
  const auto require = [](bool holds_here) {
    if (!holds_here) throw std::logic_error("the boxes are not the interval");
  };
  int64_t intervals = 0;
  for (size_t ndim = 0; ndim <= 3; ++ndim) {
    walk(Dims(ndim, 5), [&](const Dims& shape) {
      const int64_t numel = count_cells(shape);
      for (int64_t begin = 0; begin <= numel; ++begin) {
        for (int64_t end = begin; end <= numel; ++end, ++intervals) {
          ASSERT_NO_THROW(check_boxes(shape, {begin, end}, require))
              << tuple_text(shape) << " [" << begin << ", " << end << ")";
        }
      }
    });
  }
  EXPECT_EQ(intervals, 15'788);  // the sum of (numel + 1) * (numel + 2) / 2 over the 156 shapes
}

TEST(IntervalBoxes, OfLongerShapes_ReproduceTheInterval) {
  check_property(2000, [] {
    const Dims shape = *drawn([] { return draw_shape(); });
    const int64_t numel = count_cells(shape);
    const auto [begin, size] = *drawn([numel] {
      const Interval interval = draw_interval(numel);
      return std::pair(interval.begin, interval.size());
    });
    check_boxes(shape, {begin, begin + size}, [](bool holds_here) { RC_ASSERT(holds_here); });
  });
}

TEST(RegionBoxes, InOrder_AreTheRegion) {
  check_property(3000, [] {
    const RegionPair pair = *drawn(draw_regions);
    Cells found;
    for (const Box& box : region_boxes(pair.a)) {
      const Cells cells = cells_of(box, pair.shape);
      found.insert(found.end(), cells.begin(), cells.end());
    }
    RC_ASSERT(found == cells_of(pair.a, pair.shape));
  });
}

TEST(RegionRun, IsTheRegionAndLiesInItsHull) {
  check_property(3000, [] {
    const RegionPair pair = *drawn(draw_regions);
    const Cells cells = cells_of(pair.a, pair.shape);
    RC_PRE(!cells.empty());
    const bool is_run = cells.back() - cells.front() + 1 == static_cast<int64_t>(cells.size());
    if (const auto run = flat_run(pair.a, pair.shape)) {
      RC_ASSERT(is_run);
      RC_ASSERT(run->begin == cells.front() && run->end == cells.back() + 1);
    } else {
      // A run within a block that is none may be missed, the whole of a block never.
      RC_ASSERT(!is_run || !pair.a.is_whole_box());
    }
    const Interval hull = flat_hull(pair.a, pair.shape);
    RC_ASSERT(hull.begin <= cells.front() && cells.back() < hull.end);
  });
}

TEST(RegionIntersection, Pieces_PairTheSameCellsOnce) {
  check_property(6000, [] {
    const RegionPair pair = *drawn(draw_regions);
    const Cells a = cells_of(pair.a, pair.shape);
    const Cells b = cells_of(pair.b, pair.shape);
    Cells both;
    for (const int64_t cell : a) {
      if (std::ranges::count(b, cell) > 0) both.push_back(cell);
    }
    Cells paired;
    for (const Piece& piece : intersect(pair.a, pair.b, pair.shape)) {
      const Cells in_a = places_of(piece.in_a);
      const Cells in_b = places_of(piece.in_b);
      RC_ASSERT(!in_a.empty() && in_a.size() == in_b.size());
      for (size_t i = 0; i < in_a.size(); ++i) {
        paired.push_back(a.at(static_cast<size_t>(in_a[i])));
        RC_ASSERT(b.at(static_cast<size_t>(in_b[i])) == paired.back());
      }
    }
    std::ranges::sort(paired);
    RC_ASSERT(paired == both);
    RC_ASSERT(overlap_numel(pair.a, pair.b, pair.shape) == static_cast<int64_t>(both.size()));
  });
}

}  // namespace
}  // namespace hyper_parallel::test
