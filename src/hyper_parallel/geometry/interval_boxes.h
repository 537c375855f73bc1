#pragma once

// A flat interval as N-D boxes.
//
// Cells [begin, end) of the row-major order of a tensor seldom form a block. Cut where rows, planes, .. begin, they are
// a short staircase: up to n - 1 boxes that finish the row, plane, .. in which `begin` lies, one block of whole rows,
// and up to n - 1 boxes that start the row, plane, .. in which `end` lies; at most 2n - 1 for n dims. The boxes come in
// row-major order, are disjoint, and laid end to end are exactly the interval.

#include <vector>

#include "hyper_parallel/geometry/box.h"

namespace hyper_parallel {

struct IntervalBox {
  Box box;
  Interval flat;  // the part of the given interval that this box is: flat.size() == box.numel()
  friend bool operator==(const IntervalBox&, const IntervalBox&) = default;
};

/// The boxes of `interval`, cells counted row-major in a tensor of `shape`; `interval` lies in [0, numel].
/// Example: shape (3, 4, 5), [7, 53) -> (0,1,2)+(1,1,3), (0,2,0)+(1,2,5), (1,0,0)+(1,4,5), (2,0,0)+(1,2,5),
/// (2,2,0)+(1,1,3). No box for an empty interval. Throws kOutOfRange for one that leaves the tensor.
std::vector<IntervalBox> interval_to_boxes(const Dims& shape, Interval interval);

}  // namespace hyper_parallel
