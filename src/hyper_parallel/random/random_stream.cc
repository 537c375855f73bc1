#include "hyper_parallel/random/random_stream.h"

namespace hyper_parallel {
namespace {

/// The finalizer of splitmix64 (Steele, Lea and Flood 2014), a bijection. Not base/hash.h, whose hashes are one
/// process's own affair.
uint64_t scrambled(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

uint64_t mixed_key(uint64_t seed, std::span<const int64_t> ranks) {
  uint64_t key = scrambled(seed) ^ ranks.size();
  for (const int64_t rank : ranks) key = scrambled(scrambled(key) ^ static_cast<uint64_t>(rank));
  return key;
}

}  // namespace hyper_parallel
