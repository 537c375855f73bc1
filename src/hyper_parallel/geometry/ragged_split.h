#pragma once

// RaggedSplit: which run of the flat tensor each rank of a ragged group owns.
//
//   cells_per_unit = prod(shape[:k]) / sum(units)          must divide, so that no unit cuts through a suffix block
//   start(r)       = sum(units[:r]) * cells_per_unit * prod(shape[k:])
//   end(r)         = start(r) + units[r] * cells_per_unit * prod(shape[k:])
//
// (RaggedShard specification, section 3.2; k is the number of dims.) Zero prefix cells give every rank an empty run.

#include <span>

#include "hyper_parallel/geometry/interval.h"
#include "hyper_parallel/placement/placement.h"

namespace hyper_parallel {

class RaggedSplit {
 public:
  /// Throws kInvalidArgument: more dims than the shape has, prefix cells that the units' sum does not divide, an
  /// overflow.
  RaggedSplit(const RaggedShard& placement, std::span<const int64_t> shape);

  const RaggedShard& placement() const { return placement_; }
  int64_t elements_per_unit() const { return elements_per_unit_; }
  int64_t cut(int64_t rank) const { return placement_.cuts()[static_cast<size_t>(rank)] * elements_per_unit_; }
  Interval owned(int64_t rank) const { return {cut(rank), cut(rank + 1)}; }

  /// The ranks [first, last) outside which nobody owns a cell of `cells`; ranks within may still own none.
  /// O(log ranks) by the sorted cuts. Empty for an empty interval.
  Interval owners(Interval cells) const;

  /// True if every rank owns the same run under both splits, whatever their dims and units.
  friend bool same_split(const RaggedSplit& a, const RaggedSplit& b);

 private:
  RaggedShard placement_;
  int64_t elements_per_unit_ = 0;
};

}  // namespace hyper_parallel
