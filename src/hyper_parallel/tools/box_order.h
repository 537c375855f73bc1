#pragma once

// A box's cells among those of its tensor, both in row-major order.

#include <cstdint>

#include "hyper_parallel/geometry/box.h"

namespace hyper_parallel {

/// How many cells of `box` come before cell `flat` of a tensor of `shape`, 0 <= flat <= its number of cells. So the
/// box's cells of a run [a, b) of the tensor are its own run [cells_before(.., a), cells_before(.., b)).
/// Example: box (0, 1)+(2, 2) in a (2, 4) tensor holds the cells 1, 2, 5 and 6; before cell 5 there are 2.
int64_t cells_before(const Box& box, const Dims& shape, int64_t flat);

}  // namespace hyper_parallel
