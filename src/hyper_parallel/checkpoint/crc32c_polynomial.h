#pragma once

// Arithmetic modulo the polynomial of CRC32C (RFC 3720, appendix B.4), for the tables and constants of its kernels.
//
// A polynomial of degree below 32 is a word whose bit 31 - i is the coefficient of x^i.

#include <cstdint>

namespace hyper_parallel::crc32c_polynomial {

inline constexpr uint32_t kPolynomial = 0x82F63B78;  // without x^32
inline constexpr uint32_t kOne = uint32_t{1} << 31;
inline constexpr uint32_t kX = uint32_t{1} << 30;

/// The polynomial times x.
constexpr uint32_t times_x(uint32_t polynomial) {
  return (polynomial >> 1) ^ ((polynomial & 1) != 0 ? kPolynomial : 0);
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = times_x(b);
  }
  return product;
}

/// x^exponent, by squaring.
constexpr uint32_t power_of_x(uint64_t exponent) {
  uint32_t result = kOne;
  uint32_t square = kX;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

}  // namespace hyper_parallel::crc32c_polynomial
