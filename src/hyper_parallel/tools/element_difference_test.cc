#include "hyper_parallel/tools/element_difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace hyper_parallel {
namespace {

template <typename T>
ElementDifference difference_of(DType dtype, const std::vector<T>& a, const std::vector<T>& b) {
  ElementDifference difference;
  add_difference(dtype, std::as_bytes(std::span(a)), std::as_bytes(std::span(b)), difference);
  return difference;
}

TEST(ElementDifference, Floats_CountsAndTellsTheLargestDistance) {
  EXPECT_EQ(difference_of<float>(DType::kF32, {1, 2, 3}, {1, 2.5, -1}), (ElementDifference{2, 4, 0}));
  EXPECT_EQ(difference_of<double>(DType::kF64, {1, 2}, {1, 2 + 0x1p-40}), (ElementDifference{1, 0x1p-40, 0}));
}

TEST(ElementDifference, HalfFloats_AreDecoded) {
  // F16: 1.0 = 0x3C00, -2.0 = 0xC000, the smallest subnormal 2^-24 = 0x0001. BF16: 1.0 = 0x3F80, 3.0 = 0x4040.
  EXPECT_EQ(difference_of<uint16_t>(DType::kF16, {0x3C00}, {0xC000}), (ElementDifference{1, 3, 0}));
  EXPECT_EQ(difference_of<uint16_t>(DType::kF16, {0x0001}, {0x0000}), (ElementDifference{1, 0x1p-24, 0}));
  EXPECT_EQ(difference_of<uint16_t>(DType::kF16, {0x7BFF}, {0x0000}), (ElementDifference{1, 65504, 0}));
  EXPECT_EQ(difference_of<uint16_t>(DType::kBF16, {0x3F80}, {0x4040}), (ElementDifference{1, 2, 0}));
}

TEST(ElementDifference, NotANumber_HasNoDistance) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(difference_of<float>(DType::kF32, {nan, 1}, {nan, 1}), (ElementDifference{}));
  EXPECT_EQ(difference_of<float>(DType::kF32, {nan, 1}, {0, 2}), (ElementDifference{2, 1, 1}));
  EXPECT_EQ(difference_of<float>(DType::kF32, {infinity}, {1}), (ElementDifference{1, infinity, 0}));
  EXPECT_EQ(difference_of<uint16_t>(DType::kF16, {0x7C00, 0x7E00}, {0x7C00, 0x3C00}), (ElementDifference{1, 0, 1}));
}

TEST(ElementDifference, SignOfZero_Differs) {
  EXPECT_EQ(difference_of<double>(DType::kF64, {0.0}, {-0.0}), (ElementDifference{1, 0, 0}));
}

TEST(ElementDifference, OtherTypes_AreCountedAlone) {
  EXPECT_EQ(difference_of<int64_t>(DType::kI64, {1, 2, 3}, {1, 5, 4}), (ElementDifference{2, 0, 0}));
  EXPECT_EQ(difference_of<uint8_t>(DType::kBool, {0, 1}, {1, 1}), (ElementDifference{1, 0, 0}));
  EXPECT_EQ(difference_of<float>(DType::kC64, {1, 2, 3, 4}, {1, 2, 0, 0}), (ElementDifference{1, 0, 0}));
}

TEST(ElementDifference, PackedTypes_AreCountedByElement) {
  EXPECT_EQ(difference_of<uint8_t>(DType::kF4, {0x21, 0x43}, {0x22, 0x43}).elements, 1);
  EXPECT_EQ(difference_of<uint8_t>(DType::kF4, {0x21, 0x43}, {0x12, 0x43}).elements, 2);
  // Four elements of six bits; the second lies in the bits 6 to 11.
  EXPECT_EQ(difference_of<uint8_t>(DType::kF6E2M3, {0x00, 0x00, 0x00}, {0x40, 0x01, 0x00}).elements, 1);
}

TEST(ElementDifference, NoElements_IsNone) {
  EXPECT_EQ(difference_of<float>(DType::kF32, {}, {}), (ElementDifference{}));
}

TEST(ElementDifference, HasDistance_IsForTheFloatsOfArithmetic) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) EXPECT_TRUE(has_distance(dtype));
  for (const DType dtype : {DType::kI64, DType::kC64, DType::kBool, DType::kF8E4M3}) EXPECT_FALSE(has_distance(dtype));
}

}  // namespace
}  // namespace hyper_parallel
