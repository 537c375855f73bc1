#pragma once

// Region: what one rank holds of a tensor, and where each piece of it lies in the rank's local storage.
//
// A region is a run of the row-major order of a box: `flat` counts cells of `box`. Every layout gives such a region:
//
//   Shard, nested or not     the box of its rows, all of it:       flat == [0, box.numel())
//   RaggedShard              a run of the whole tensor:            box == the tensor
//   an even cut of a block   a run of the block                    (made by the planner, see distribution.h)
//
// Local storage holds the region's cells in that order, contiguously: element i of it is cell flat.begin + i of the
// box.

#include <optional>
#include <vector>

#include "hyper_parallel/geometry/box.h"
#include "hyper_parallel/geometry/interval_boxes.h"
#include "hyper_parallel/geometry/strided_view.h"

namespace hyper_parallel {

struct Region {
  Box box;
  Interval flat;

  int64_t numel() const { return flat.size(); }
  bool empty() const { return flat.empty(); }
  bool is_whole_box() const { return flat.size() == box.numel(); }
  friend bool operator==(const Region&, const Region&) = default;
};

/// The region of a whole box.
Region region_of(Box box);

/// The region's run in the row-major order of a tensor of `shape`, if it is one: always for ragged shares, for boxes
/// that cut the outermost dim alone, and for empty regions ([0, 0)).
std::optional<Interval> flat_run(const Region& region, const Dims& shape);

/// The smallest run of the row-major order of a tensor of `shape` that holds the region; [0, 0) for an empty one.
Interval flat_hull(const Region& region, const Dims& shape);

/// A box of tensor coordinates that holds the region, tight in the dims up to the first in which its cells differ.
/// Example: cells [6, 11) of a (5, 4) tensor -> rows 1 and 2: (1, 0)+(2, 4).
Box bounding_box(const Region& region);

/// The region as disjoint boxes of tensor coordinates, in the order of its local storage.
std::vector<Box> region_boxes(const Region& region);

/// The cells that both regions hold, as pieces in a fixed order that depends on (a, b) alone: the place of each in the
/// local storage of `a` and of `b`. Both sides of a message compute the same list, and it is the one intersection
/// engine of redistribution and checkpoint. `shape` is the tensor's.
struct Piece {
  StridedView in_a;
  StridedView in_b;
  friend bool operator==(const Piece&, const Piece&) = default;
};
std::vector<Piece> intersect(const Region& a, const Region& b, const Dims& shape);

/// How many cells both regions hold.
int64_t overlap_numel(const Region& a, const Region& b, const Dims& shape);

}  // namespace hyper_parallel
