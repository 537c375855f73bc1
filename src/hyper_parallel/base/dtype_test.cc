#include "hyper_parallel/base/dtype.h"

#include <gtest/gtest.h>

#include <string>

#include "hyper_parallel/base/text.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

TEST(DType, AllTypes_AreThoseOfTheStockLibrary_InItsOrder) {
  EXPECT_EQ(
      join(all_dtypes(), " "),
      "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 "
      "C64 F64 I64 U64");
}

TEST(DType, ParseOfToString_IsTheSameType) {
  for (const DType dtype : all_dtypes()) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    EXPECT_EQ(find_dtype(to_string(dtype)), dtype);
  }
}

TEST(DType, Parse_UnknownName_IsRefusedWithTheList) {
  expect_error(ErrorCode::kInvalidArgument, "dtype 'Q99' is not one of BOOL, F4, ", [] { parse_dtype("Q99"); });
  expect_error(ErrorCode::kInvalidArgument, "dtype 'f32' is not one of", [] { parse_dtype("f32"); });
  EXPECT_EQ(find_dtype(""), std::nullopt);
}

TEST(DType, WidthInBits_FollowsTheName) {
  EXPECT_EQ(bits_per_element(DType::kBool), 8);
  EXPECT_EQ(bits_per_element(DType::kF4), 4);
  EXPECT_EQ(bits_per_element(DType::kF6E2M3), 6);
  EXPECT_EQ(bits_per_element(DType::kC64), 64);
  for (const DType dtype : all_dtypes()) {
    const std::string name(to_string(dtype));
    const size_t digit = name.find_first_of("0123456789");
    if (digit == std::string::npos) continue;  // BOOL
    EXPECT_EQ(bits_per_element(dtype), std::stoi(name.substr(digit))) << name;
  }
}

TEST(DType, Order_NeverPutsAWiderTypeBeforeANarrowerOne_AmongWholeByteTypes) {
  int64_t widest = 0;
  for (const DType dtype : all_dtypes()) {
    if (bits_per_element(dtype) < 8) continue;
    EXPECT_GE(bits_per_element(dtype), widest) << dtype;
    widest = bits_per_element(dtype);
  }
}

}  // namespace
}  // namespace hyper_parallel
