#include "hyper_parallel/base/checked.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace hyper_parallel {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

void expect_overflow(const std::function<int64_t()>& compute, const std::string& message) {
  try {
    const int64_t value = compute();
    FAIL() << "gave " << value << " instead of raising: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.what(), message);
  }
}

TEST(CheckedAdd, UpToTheLimits_IsExact) {
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add(kMin + 1, -1), kMin);
  EXPECT_EQ(checked_add(kMax, kMin), -1);
}

TEST(CheckedAdd, PastEitherLimit_Raises) {
  expect_overflow([] { return checked_add(kMax, 1); }, "9223372036854775807 + 1 does not fit in int64");
  expect_overflow([] { return checked_add(kMin, -1); }, "-9223372036854775808 + -1 does not fit in int64");
}

TEST(CheckedMul, UpToTheLimits_IsExact) {
  EXPECT_EQ(checked_mul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(checked_mul(int64_t{1} << 62, -2), kMin);
}

TEST(CheckedMul, PastEitherLimit_Raises) {
  expect_overflow([] { return checked_mul(int64_t{1} << 32, int64_t{1} << 31); },
                  "4294967296 * 2147483648 does not fit in int64");
  expect_overflow([] { return checked_mul(kMin, -1); }, "-9223372036854775808 * -1 does not fit in int64");
}

TEST(CheckedProduct, OfAShape_IsItsNumberOfElements) {
  EXPECT_EQ(checked_product(std::vector<int64_t>{6, 4, 8}), 192);
  EXPECT_EQ(checked_product(std::vector<int64_t>{}), 1);
}

TEST(CheckedProduct, ZeroAfterFactorsThatOverflow_IsZeroInEveryOrder) {
  EXPECT_EQ(checked_product(std::vector<int64_t>{kMax, 4, 0}), 0);
  EXPECT_EQ(checked_product(std::vector<int64_t>{0, kMax, 4}), 0);
}

TEST(CheckedProduct, Overflow_Raises) {
  expect_overflow([] { return checked_product(std::vector<int64_t>{2, kMax, 3}); },
                  "2 * 9223372036854775807 does not fit in int64");
}

TEST(CheckedSum, OfUnits_IsTheirTotal) {
  EXPECT_EQ(checked_sum(std::vector<int64_t>{1, 2, 0, 5}), 8);
  EXPECT_EQ(checked_sum(std::vector<int64_t>{}), 0);
}

TEST(CheckedSum, Overflow_Raises) {
  expect_overflow([] { return checked_sum(std::vector<int64_t>{kMax, 0, 7}); },
                  "9223372036854775807 + 7 does not fit in int64");
}

TEST(CeilDiv, RoundsUpOnlyWhereSomethingIsLeft) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(4, 4), 1);
  EXPECT_EQ(ceil_div(5, 4), 2);
}

TEST(CeilDiv, LargestDividend_DoesNotOverflow) {
  EXPECT_EQ(ceil_div(kMax, 1), kMax);
  EXPECT_EQ(ceil_div(kMax, kMax - 1), 2);
}

}  // namespace
}  // namespace hyper_parallel
