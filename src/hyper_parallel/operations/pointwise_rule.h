#pragma once

// Operations on cells at the same place, operands broadcast to one shape as numpy and torch have it.

#include <span>

#include "hyper_parallel/operations/rule.h"

namespace hyper_parallel {

/// The shape that all `shapes` broadcast to: aligned at the last dim, sizes equal or 1. Throws kInvalidArgument for
/// shapes that do not. Example: (6, 1) and (4,) give (6, 4).
Dims broadcast_shape(std::span<const Dims> shapes);

/// One result of that shape. No reduction stays pending.
Rule pointwise_rule(std::span<const Dims> shapes);

/// The axes of an operand of `shape` beside a result with `result_axes` and `result_shape`: those of the dims at the
/// same place from the end, none where it is broadcast.
std::vector<int> broadcast_axes(const Dims& shape, const Dims& result_shape, std::span<const int> result_axes);

}  // namespace hyper_parallel
