#pragma once

// Interval: the half-open run [begin, end) of a flat index space.

#include <algorithm>
#include <cstdint>

namespace hyper_parallel {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// What both hold; an empty interval where that is nothing.
inline Interval intersect(Interval a, Interval b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// The part of `whole` with number `index` of `parts`, cut by the Shard rule: chunks of ceil(size / parts), the last
/// ones smaller or empty. Empty parts lie at the end of `whole`. `index` is in [0, parts).
inline Interval chunk_of(Interval whole, int64_t parts, int64_t index) {
  const int64_t chunk = whole.size() / parts + (whole.size() % parts != 0 ? 1 : 0);
  // index * chunk < size + parts, and no later sum exceeds whole.end: a tensor dim near 2^63 does not overflow.
  const int64_t begin = std::min(index * chunk, whole.size());
  return {whole.begin + begin, whole.begin + begin + std::min(chunk, whole.size() - begin)};
}

/// The part of `whole` with number `index` of `parts`, cut as evenly as possible: sizes differ by one at most.
inline Interval even_part_of(Interval whole, int64_t parts, int64_t index) {
  const int64_t base = whole.size() / parts;
  const int64_t longer = whole.size() % parts;
  const int64_t begin = whole.begin + index * base + std::min(index, longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

}  // namespace hyper_parallel
