#pragma once

// The runs of a region: where its cells lie next to each other both in the row-major order of the whole tensor and in
// the rank's local storage.

#include <cstdint>
#include <functional>

#include "hyper_parallel/geometry/region.h"

namespace hyper_parallel {

/// `first` is the row-major position in the tensor of local element `local.begin`, and so on up to `local.end`.
struct RegionRun {
  int64_t first;
  Interval local;
  friend bool operator==(const RegionRun&, const RegionRun&) = default;
};

/// Calls `visit` for runs that make up the region, none empty, in the order of its local storage. A dim that the region
/// holds whole is walked in one piece with the next outer one: a tensor cut by rows has one run.
/// Example: columns [1, 3) of a (2, 4) tensor -> {1, [0, 2)}, {5, [2, 4)}.
void for_each_run(const Region& region, const Dims& shape, const std::function<void(const RegionRun&)>& visit);

}  // namespace hyper_parallel
