#pragma once

// Do boxes tile a tensor: disjoint, inside, and filling it?

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "hyper_parallel/geometry/box.h"

namespace hyper_parallel {

/// What is wrong with `count` boxes (given by number, each inside `shape` and with at least one cell) as a tiling of
/// `shape`, as the end of a sentence: "chunks (0, 0)+(2, 4) and (1, 0)+(2, 4) overlap", "no chunk holds cell (3, 0)".
/// Nothing if they tile it. The first fault in row-major order of the cells is told, with the two boxes of the lowest
/// numbers that hold it. Takes O(n) time for the boxes of any layout and no memory; a fault takes O(n log(cells)).
///
/// Boxes that tile always pass. Others pass with a probability of about ndim / 2^61, whatever their author intends.
std::optional<std::string> tiling_fault(const Dims& shape, int64_t count, const std::function<Box(int64_t)>& box);

}  // namespace hyper_parallel
