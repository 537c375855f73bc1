#include "hyper_parallel/torch/scalar_dtype.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace hyper_parallel {
namespace {

// By torch's name of the type, the name in a file.
const std::map<std::string, std::string> kStoredNames = {
    {"Bool", "BOOL"},
    {"Byte", "U8"},
    {"Char", "I8"},
    {"Short", "I16"},
    {"Int", "I32"},
    {"Long", "I64"},
    {"UInt16", "U16"},
    {"UInt32", "U32"},
    {"UInt64", "U64"},
    {"Half", "F16"},
    {"BFloat16", "BF16"},
    {"Float", "F32"},
    {"Double", "F64"},
    {"ComplexFloat", "C64"},
    {"Float8_e5m2", "F8_E5M2"},
    {"Float8_e4m3fn", "F8_E4M3"},
    {"Float8_e8m0fnu", "F8_E8M0"},
    {"Float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {"Float8_e5m2fnuz", "F8_E5M2FNUZ"},
};

TEST(StoredDtype, EveryTypeOfTorch_IsTheOneOfThatNameOrNothing) {
  size_t stored = 0;
  for (int8_t number = 0; number < static_cast<int8_t>(at::ScalarType::NumOptions); ++number) {
    const auto type = static_cast<at::ScalarType>(number);
    const std::string name = c10::toString(type);
    SCOPED_TRACE(name);
    const auto dtype = stored_dtype(type);
    const auto expected = kStoredNames.find(name);
    ASSERT_EQ(dtype.has_value(), expected != kStoredNames.end());
    if (!dtype.has_value()) continue;
    ++stored;
    EXPECT_EQ(to_string(*dtype), expected->second);
    EXPECT_EQ(bits_per_element(*dtype), 8 * static_cast<int64_t>(c10::elementSize(type)));
    EXPECT_EQ(scalar_type(*dtype), type);
  }
  EXPECT_EQ(stored, kStoredNames.size());
}

TEST(StoredDtype, TypesOfOtherWidthOrPacking_AreNothing) {
  EXPECT_EQ(stored_dtype(at::kComplexDouble), std::nullopt);
  EXPECT_EQ(stored_dtype(at::kComplexHalf), std::nullopt);
  EXPECT_EQ(stored_dtype(at::kQInt8), std::nullopt);
  EXPECT_EQ(stored_dtype(at::ScalarType::Float4_e2m1fn_x2), std::nullopt);
  EXPECT_EQ(stored_dtype(at::ScalarType::Undefined), std::nullopt);
}

TEST(ScalarType, EveryStoredType_ComesBackOrIsOneThatTorchLacks) {
  for (const DType dtype : all_dtypes()) {
    SCOPED_TRACE(to_string(dtype));
    const bool is_packed = dtype == DType::kF4 || dtype == DType::kF6E2M3 || dtype == DType::kF6E3M2;
    const auto type = scalar_type(dtype);
    ASSERT_EQ(type.has_value(), !is_packed);
    if (!is_packed) {
      EXPECT_EQ(stored_dtype(*type), dtype);
    }
  }
}

TEST(WideDtype, HalvesAlone_AreWidened) {
  EXPECT_EQ(wide_dtype(at::kHalf), at::kFloat);
  EXPECT_EQ(wide_dtype(at::kBFloat16), at::kFloat);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kComplexFloat, at::kLong, at::kBool}) {
    EXPECT_EQ(wide_dtype(type), type);
  }
}

}  // namespace
}  // namespace hyper_parallel
