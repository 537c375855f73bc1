#pragma once

// RandomStream: an endless sequence of 32-bit words that is a function of two numbers, so that every rank can compute
// any part of it alone.
//
//   key       who draws: a seed and the mesh
//   number    the how-manieth random call of that mesh it is
//
//   word k = word k mod 4 of Philox(counter = (k div 4, number), key), each half of the counter 64 bits, low word first
//
// What a tensor's element is made of depends on its row-major position in the whole tensor alone (`fill_random.h`):
// replicas are equal, and so is a tensor however it is cut.

#include <cstdint>
#include <span>

#include "hyper_parallel/random/philox.h"

namespace hyper_parallel {

struct RandomStream {
  uint64_t key = 0;
  uint64_t number = 0;
  friend bool operator==(const RandomStream&, const RandomStream&) = default;
};

/// Words 4 * block .. 4 * block + 3 of the stream.
constexpr PhiloxWords words_of_block(const RandomStream& stream, uint64_t block) {
  return philox4x32_10({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                        static_cast<uint32_t>(stream.number), static_cast<uint32_t>(stream.number >> 32)},
                       {static_cast<uint32_t>(stream.key), static_cast<uint32_t>(stream.key >> 32)});
}

/// The key for a seed on a mesh of `ranks`: unlike lists, also of the same ranks in another order, have unlike keys
/// (up to collisions of 64-bit hashes). The same on every machine, for ever: saved seeds depend on it.
uint64_t mixed_key(uint64_t seed, std::span<const int64_t> ranks);

}  // namespace hyper_parallel
