#pragma once

// The 16-bit floating-point formats: IEEE's binary16 and bfloat16, as bits, to and from float. No branches, so that
// loops over them become vector code.

#include <bit>
#include <cstdint>

namespace hyper_parallel {

/// Exact.
inline float float_from_bfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// The nearest bfloat16, the even one of two; every NaN becomes 0x7FC0.
inline uint16_t bfloat16_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>(value != value ? 0x7FC0U : rounded);
}

/// Exact. binary16 has 5 exponent bits of bias 15 and 10 fraction bits, float 8 of bias 127 and 23.
inline float float_from_float16(uint16_t bits) {
  constexpr uint32_t kRebias = (127U - 15U) << 23;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t magnitude = bits & 0x7FFFU;
  const uint32_t normal = (magnitude << 13) + kRebias;
  const uint32_t infinite_or_nan = normal + kRebias;  // the exponent of all ones moves to all ones
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
  const uint32_t finite = magnitude < 0x0400U ? subnormal : normal;
  return std::bit_cast<float>(sign | (magnitude < 0x7C00U ? finite : infinite_or_nan));
}

/// The nearest binary16, the even one of two; too large becomes infinite, every NaN 0x7E00 with its sign.
inline uint16_t float16_from_float(float value) {
  constexpr uint32_t kRebias = (127U - 15U) << 23;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const uint32_t normal = (magnitude - kRebias + 0x0FFFU + ((magnitude >> 13) & 1U)) >> 13;
  // Beside 0.5 a float's last bit is 2^-24, the unit of subnormal binary16: the addition rounds to it.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  const uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
  const uint32_t special = magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U;
  return static_cast<uint16_t>(sign | (magnitude < 0x47800000U ? finite : special));
}

}  // namespace hyper_parallel
