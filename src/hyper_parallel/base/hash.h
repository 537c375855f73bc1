#pragma once

// Hashing of composed values. Process-local: a hash is never written to a file or sent to another rank.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>

namespace hyper_parallel {

/// Mixes `value`'s hash into `seed`. std::hash of an integer is the integer itself, so the sum is scrambled by the
/// finalizer of splitmix64 (Steele, Lea and Flood 2014): short lists of small numbers do not collide.
template <typename T>
void hash_combine(size_t& seed, const T& value) {
  uint64_t mixed = seed * 0x9e3779b97f4a7c15ULL + std::hash<T>{}(value) + 0x9e3779b97f4a7c15ULL;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  seed = mixed ^ (mixed >> 31);
}

/// Mixes the length and every item of `items` into `seed`.
template <std::ranges::sized_range Range>
void hash_combine_range(size_t& seed, const Range& items) {
  hash_combine(seed, std::ranges::size(items));
  for (const auto& item : items) hash_combine(seed, item);
}

}  // namespace hyper_parallel
