#include "hyper_parallel/checkpoint/storage_bytes.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

using Shape = std::vector<int64_t>;

TEST(StorageBytes, WholeByteTypes_AreElementsTimesWidth) {
  EXPECT_EQ(storage_bytes(DType::kF32, Shape{2, 3}, "tensor 'w'"), 24);
  EXPECT_EQ(storage_bytes(DType::kC64, Shape{3}, "tensor 'w'"), 24);
  EXPECT_EQ(storage_bytes(DType::kI64, Shape{}, "tensor 'w'"), 8);
  EXPECT_EQ(storage_bytes(DType::kF64, Shape{0, 4}, "tensor 'w'"), 0);
}

TEST(StorageBytes, SubByteTypes_ArePacked) {
  EXPECT_EQ(storage_bytes(DType::kF4, Shape{4}, "tensor 'w'"), 2);
  EXPECT_EQ(storage_bytes(DType::kF6E2M3, Shape{2, 4}, "tensor 'w'"), 6);
  EXPECT_EQ(storage_bytes(DType::kF6E3M2, Shape{0}, "tensor 'w'"), 0);
}

TEST(StorageBytes, SubByteTypeThatDoesNotFillBytes_IsRefused) {
  expect_error(ErrorCode::kInvalidArgument,
               "tensor 'w' has shape (3,) of F4, which takes 12 bits, but a tensor must fill whole bytes",
               [] { storage_bytes(DType::kF4, Shape{3}, "tensor 'w'"); });
  expect_error(ErrorCode::kInvalidArgument, "has shape () of F6_E3M2, which takes 6 bits",
               [] { storage_bytes(DType::kF6E3M2, Shape{}, "tensor 'w'"); });
}

TEST(StorageBytes, NegativeDim_IsRefused) {
  expect_error(ErrorCode::kInvalidArgument, "tensor 'w' has shape (2, -1), but a dim must not be negative",
               [] { storage_bytes(DType::kU8, Shape{2, -1}, "tensor 'w'"); });
}

TEST(StorageBytes, ProductOutsideInt64_IsRefused) {
  const int64_t large = int64_t{1} << 62;
  expect_error(ErrorCode::kInvalidArgument, "whose number of elements does not fit in int64",
               [&] { storage_bytes(DType::kU8, Shape{large, 4}, "tensor 'w'"); });
  expect_error(ErrorCode::kInvalidArgument, "whose number of bits does not fit in int64",
               [&] { storage_bytes(DType::kU8, Shape{large}, "tensor 'w'"); });
}

TEST(StorageBytes, ZeroDim_HidesAnOverflowOnlyWhenItComesFirst_AsInTheStockLibrary) {
  const int64_t large = int64_t{1} << 62;
  EXPECT_EQ(storage_bytes(DType::kU8, Shape{0, large, 4}, "tensor 'w'"), 0);
  expect_error(ErrorCode::kInvalidArgument, "whose number of elements does not fit in int64",
               [&] { storage_bytes(DType::kU8, Shape{large, 4, 0}, "tensor 'w'"); });
}

}  // namespace
}  // namespace hyper_parallel
