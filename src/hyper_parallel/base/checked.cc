#include "hyper_parallel/base/checked.h"

#include <algorithm>

namespace hyper_parallel {

std::optional<int64_t> try_product(std::span<const int64_t> factors) {
  // A shape such as (2^62, 4, 0) has no elements; its product must not depend on the order of the factors.
  if (std::ranges::find(factors, 0) != factors.end()) return 0;
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

int64_t checked_product(std::span<const int64_t> factors) {
  if (const auto product = try_product(factors)) return *product;
  int64_t product = 1;
  for (const int64_t factor : factors)
    product = checked_mul(product, factor);  // throws with the pair that is too large
  return product;
}

int64_t checked_sum(std::span<const int64_t> terms) {
  int64_t sum = 0;
  for (const int64_t term : terms) sum = checked_add(sum, term);
  return sum;
}

}  // namespace hyper_parallel
