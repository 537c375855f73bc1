#pragma once

// How much two runs of elements differ.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hyper_parallel/base/dtype.h"

namespace hyper_parallel {

/// Of runs of equal length. Elements differ if their bits do: 0.0 and -0.0 differ, equal NaNs do not.
struct ElementDifference {
  int64_t elements = 0;   // that differ
  double largest = 0;     // |a - b| over those of F64, F32, F16 and BF16 that are numbers on both sides
  int64_t undefined = 0;  // elements that differ and have no |a - b|: NaN on a side, or infinities of one sign
  friend bool operator==(const ElementDifference&, const ElementDifference&) = default;
};

/// True for the types of which `largest` is told: F64, F32, F16 and BF16.
bool has_distance(DType dtype);

/// Adds what differs between `a` and `b`, equally many bytes of whole elements, to `difference`.
void add_difference(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b,
                    ElementDifference& difference);

}  // namespace hyper_parallel
