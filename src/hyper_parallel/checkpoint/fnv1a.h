#pragma once

// FNV-1a, 64 bits (Fowler, Noll and Vo): a hash that is the same in every process, on every machine, for good.

#include <cstdint>
#include <string_view>

namespace hyper_parallel {

/// Example: fnv1a_64("") == 0xcbf29ce484222325, fnv1a_64("a") == 0xaf63dc4c8601ec8c.
constexpr uint64_t fnv1a_64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace hyper_parallel
