#pragma once

// Checked int64 arithmetic. All sums and products of shapes, units and offsets go through here:
// an overflow is the caller's fault (kInvalidArgument), never a wrapped number.

#include <cstdint>
#include <optional>
#include <span>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {

inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  HP_CHECK(!__builtin_add_overflow(a, b, &sum), kInvalidArgument, a, " + ", b, " does not fit in int64");
  return sum;
}

inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  HP_CHECK(!__builtin_mul_overflow(a, b, &product), kInvalidArgument, a, " * ", b, " does not fit in int64");
  return product;
}

/// As `checked_product`, but nothing where the product does not fit in int64.
std::optional<int64_t> try_product(std::span<const int64_t> factors);

/// The product of all factors, 1 of none. A zero anywhere gives zero, whatever stands beside it.
int64_t checked_product(std::span<const int64_t> factors);

/// The sum of all terms, 0 of none.
int64_t checked_sum(std::span<const int64_t> terms);

/// ceil(a / b) for a >= 0 and b > 0.
inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace hyper_parallel
