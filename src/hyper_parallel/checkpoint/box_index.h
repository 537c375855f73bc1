#pragma once

// BoxIndex: which of many disjoint boxes share a cell with a given one.
//
// A tree over the boxes: each node has the hull of its boxes, and is cut at the median of the dim in which their
// offsets spread most. For the boxes of a tiling a query visits little more than its results and one path down.

#include <cstdint>
#include <functional>
#include <vector>

#include "hyper_parallel/geometry/box.h"

namespace hyper_parallel {

class BoxIndex {
 public:
  /// `count` boxes of rank `ndim`, given by number. O(n log n).
  BoxIndex(size_t ndim, int64_t count, const std::function<Box(int64_t)>& box);

  /// Calls `visit(number)` for each box that shares a cell with `wanted`, in no particular order.
  void for_each_overlap(const Box& wanted, const std::function<void(int64_t)>& visit) const;

 private:
  struct Node {
    size_t begin = 0;  // of order_
    size_t end = 0;
    size_t right = 0;  // the left child is the next node; 0: a leaf
  };

  size_t build(size_t begin, size_t end);
  size_t split_dim(size_t begin, size_t end) const;
  void add_hull(size_t begin, size_t end);
  bool overlaps(const int64_t* bounds, const Box& wanted) const;

  const int64_t* bounds_of(int64_t number) const { return bounds_.data() + static_cast<size_t>(number) * 2 * ndim_; }

  size_t ndim_;
  std::vector<int64_t> bounds_;  // of each box: for every dim its begin and its end
  std::vector<int64_t> hulls_;   // of each node, likewise
  std::vector<int64_t> order_;   // the boxes' numbers; a node's boxes stand together
  std::vector<Node> nodes_;
};

}  // namespace hyper_parallel
