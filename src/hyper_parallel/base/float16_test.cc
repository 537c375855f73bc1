#include "hyper_parallel/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hyper_parallel {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The value of binary16 bits by the format's definition.
double value_of_float16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Float16, FiniteBits_AreTheValueOfTheirDefinition) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7C00) == 0x7C00) continue;
    const float value = float_from_float16(static_cast<uint16_t>(bits));
    EXPECT_EQ(value, value_of_float16(static_cast<uint16_t>(bits))) << bits;
    EXPECT_EQ(std::signbit(value), bits >= 0x8000) << bits;
  }
}

TEST(Float16, InfiniteAndNan_StaySo) {
  EXPECT_EQ(float_from_float16(0x7C00), kInfinity);
  EXPECT_EQ(float_from_float16(0xFC00), -kInfinity);
  EXPECT_TRUE(std::isnan(float_from_float16(0x7C01)));
  EXPECT_TRUE(std::isnan(float_from_float16(0xFE00)));
  EXPECT_EQ(float16_from_float(kInfinity), 0x7C00);
  EXPECT_EQ(float16_from_float(-kInfinity), 0xFC00);
  EXPECT_EQ(float16_from_float(kNan), 0x7E00);
  EXPECT_EQ(float16_from_float(-kNan), 0xFE00);
}

TEST(Float16, ThereAndBack_GivesTheSameBits) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7FFF) > 0x7C00) continue;
    EXPECT_EQ(float16_from_float(float_from_float16(static_cast<uint16_t>(bits))), bits);
  }
}

TEST(Float16, BetweenTwoNeighbours_TheNearestIsTaken_OfTwoTheEvenOne) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = float_from_float16(static_cast<uint16_t>(bits));
    const float high = float_from_float16(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    EXPECT_EQ(float16_from_float(middle), even) << bits;
    EXPECT_EQ(float16_from_float(std::nextafter(middle, 0.0F)), bits) << bits;
    EXPECT_EQ(float16_from_float(std::nextafter(middle, kInfinity)), bits + 1) << bits;
    EXPECT_EQ(float16_from_float(-middle), even | 0x8000U) << bits;
  }
}

TEST(Float16, BeyondTheLargest_IsInfinite) {
  EXPECT_EQ(float16_from_float(65504.0F), 0x7BFF);
  EXPECT_EQ(float16_from_float(std::nextafter(65520.0F, 0.0F)), 0x7BFF);
  EXPECT_EQ(float16_from_float(65520.0F), 0x7C00);
  EXPECT_EQ(float16_from_float(-1e30F), 0xFC00);
  EXPECT_EQ(float16_from_float(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(BFloat16, ThereAndBack_GivesTheSameBits) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7FFF) > 0x7F80) continue;
    EXPECT_EQ(bfloat16_from_float(float_from_bfloat16(static_cast<uint16_t>(bits))), bits);
  }
}

TEST(BFloat16, BetweenTwoNeighbours_TheNearestIsTaken_OfTwoTheEvenOne) {
  EXPECT_EQ(bfloat16_from_float(1.0F + 0x1p-8F), 0x3F80);      // halfway, even below
  EXPECT_EQ(bfloat16_from_float(1.0F + 0x3p-8F), 0x3F82);      // halfway, even above
  EXPECT_EQ(bfloat16_from_float(1.0F + 0x1.01p-8F), 0x3F81);   // above halfway
  EXPECT_EQ(bfloat16_from_float(-1.0F - 0x1.01p-8F), 0xBF81);  // likewise
  EXPECT_EQ(bfloat16_from_float(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(BFloat16, Nan_IsOneQuietNan) {
  EXPECT_EQ(bfloat16_from_float(kNan), 0x7FC0);
  EXPECT_EQ(bfloat16_from_float(-kNan), 0x7FC0);
  EXPECT_EQ(bfloat16_from_float(std::bit_cast<float>(0x7F800001U)), 0x7FC0);
  EXPECT_TRUE(std::isnan(float_from_bfloat16(0x7F81)));
}

}  // namespace
}  // namespace hyper_parallel
