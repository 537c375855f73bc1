#pragma once

// Cells, one by one: what boxes, regions and views hold, found by asking every cell of the tensor. Slow on purpose, and
// no code of the geometry in it.

#include <cstdint>
#include <functional>
#include <vector>

#include "hyper_parallel/geometry/distribution.h"

namespace hyper_parallel::test {

/// Cells of a tensor by their place in its row-major order, or places in a rank's local storage.
using Cells = std::vector<int64_t>;

/// Calls `visit(index)` for each index of a grid of `sizes`, row-major.
void walk(const Dims& sizes, const std::function<void(const Dims&)>& visit);

/// The cells of a tensor of `shape` that lie in the box, row-major.
Cells cells_of(const Box& box, const Dims& shape);

/// The cells of a region, in the order of its local storage. Throws std::out_of_range for a run that leaves its box.
Cells cells_of(const Region& region, const Dims& shape);

/// The places that a view visits, in order.
Cells places_of(const StridedView& view);

/// How many cells a tensor of `shape` has.
int64_t count_cells(const Dims& shape);

}  // namespace hyper_parallel::test
