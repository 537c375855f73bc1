#include "hyper_parallel/redistribute/combine.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "hyper_parallel/base/float16.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using ConstBytes = std::span<const std::byte>;

constexpr std::array kAllOps{ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin};

Combine combine_of(ReduceOp op, size_t members) {
  Combine combine{op, op == ReduceOp::kAvg ? static_cast<int64_t>(members) : 1, {}};
  for (size_t member = 0; member < members; ++member) combine.sources.push_back(static_cast<int64_t>(member));
  return combine;
}

/// The terms, each a list of elements, combined.
template <typename T>
std::vector<T> combined(ReduceOp op, DType dtype, const std::vector<std::vector<T>>& terms) {
  std::vector<ConstBytes> bytes;
  for (const std::vector<T>& term : terms) bytes.push_back(std::as_bytes(std::span(term)));
  std::vector<T> output(terms.front().size());
  combine_terms(combine_of(op, terms.size()), dtype, bytes, std::as_writable_bytes(std::span(output)));
  return output;
}

/// The same of one element of a 16-bit type, given and returned as floats.
float combined_halves(ReduceOp op, DType dtype, const std::vector<float>& terms) {
  const bool brain = dtype == DType::kBF16;
  std::vector<std::vector<uint16_t>> bits;
  for (const float term : terms) bits.push_back({brain ? bfloat16_from_float(term) : float16_from_float(term)});
  const uint16_t result = combined(op, dtype, bits)[0];
  return brain ? float_from_bfloat16(result) : float_from_float16(result);
}

template <typename T>
void expect_all_ops(DType dtype) {
  const std::vector<std::vector<T>> terms{{T{1}, T{9}, T{4}}, {T{5}, T{2}, T{4}}, {T{3}, T{1}, T{4}}};
  EXPECT_EQ(combined(ReduceOp::kSum, dtype, terms), (std::vector<T>{T{9}, T{12}, T{12}})) << dtype;
  EXPECT_EQ(combined(ReduceOp::kMax, dtype, terms), (std::vector<T>{T{5}, T{9}, T{4}})) << dtype;
  EXPECT_EQ(combined(ReduceOp::kMin, dtype, terms), (std::vector<T>{T{1}, T{1}, T{4}})) << dtype;
}

TEST(Combine, EveryNumber_HasSumMaxAndMin) {
  expect_all_ops<uint8_t>(DType::kU8);
  expect_all_ops<int8_t>(DType::kI8);
  expect_all_ops<int16_t>(DType::kI16);
  expect_all_ops<uint16_t>(DType::kU16);
  expect_all_ops<int32_t>(DType::kI32);
  expect_all_ops<uint32_t>(DType::kU32);
  expect_all_ops<int64_t>(DType::kI64);
  expect_all_ops<uint64_t>(DType::kU64);
  expect_all_ops<float>(DType::kF32);
  expect_all_ops<double>(DType::kF64);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    EXPECT_EQ(combined_halves(ReduceOp::kSum, dtype, {1, 5, 3}), 9);
    EXPECT_EQ(combined_halves(ReduceOp::kMax, dtype, {1, 5, 3}), 5);
    EXPECT_EQ(combined_halves(ReduceOp::kMin, dtype, {2, 1, 3}), 1);
    EXPECT_EQ(combined_halves(ReduceOp::kAvg, dtype, {2, 1, 3}), 2);
  }
  EXPECT_EQ(combined<float>(ReduceOp::kAvg, DType::kF32, {{1, 2}, {3, 5}}), (std::vector<float>{2, 3.5F}));
  EXPECT_EQ(combined<double>(ReduceOp::kAvg, DType::kF64, {{1, 2}, {3, 5}}), (std::vector<double>{2, 3.5}));
}

TEST(Combine, SignedAndUnsigned_AreComparedAsTheyAre) {
  EXPECT_EQ(combined<int8_t>(ReduceOp::kMax, DType::kI8, {{-1}, {1}})[0], 1);
  EXPECT_EQ(combined<uint8_t>(ReduceOp::kMax, DType::kU8, {{255}, {1}})[0], 255);
  EXPECT_EQ(combined<int64_t>(ReduceOp::kMin, DType::kI64, {{-1}, {1}})[0], -1);
  EXPECT_EQ(combined<uint64_t>(ReduceOp::kMin, DType::kU64, {{~uint64_t{0}}, {1}})[0], 1u);
}

TEST(Combine, IntegerSums_Wrap) {
  EXPECT_EQ(combined<uint8_t>(ReduceOp::kSum, DType::kU8, {{200}, {100}})[0], 44);
  EXPECT_EQ(combined<int8_t>(ReduceOp::kSum, DType::kI8, {{127}, {1}})[0], -128);
  EXPECT_EQ(combined<int16_t>(ReduceOp::kSum, DType::kI16, {{-32768}, {-1}})[0], 32767);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(combined<int64_t>(ReduceOp::kSum, DType::kI64, {{kMost}, {1}})[0], std::numeric_limits<int64_t>::min());
}

TEST(Combine, Sums_AreTakenInMemberOrder) {
  EXPECT_EQ(combined<float>(ReduceOp::kSum, DType::kF32, {{1e8F}, {1}, {-1e8F}})[0], 0);
  EXPECT_EQ(combined<float>(ReduceOp::kSum, DType::kF32, {{1e8F}, {-1e8F}, {1}})[0], 1);
}

TEST(Combine, SixteenBitSums_AreRoundedAfterEachTerm) {
  // Above 256 (2048) neighbours are 2 apart: each 1 is lost, though three of them would not be.
  EXPECT_EQ(combined_halves(ReduceOp::kSum, DType::kBF16, {256, 1, 1, 1}), 256);
  EXPECT_EQ(combined_halves(ReduceOp::kSum, DType::kF16, {2048, 1, 1, 1}), 2048);
  EXPECT_EQ(combined_halves(ReduceOp::kSum, DType::kF16, {1, 1, 1, 2048}), 2052);
  EXPECT_EQ(combined_halves(ReduceOp::kSum, DType::kF16, {65504, 65504}), std::numeric_limits<float>::infinity());
}

TEST(Combine, SixteenBitAverages_AreRoundedBeforeAndAfterTheDivision) {
  EXPECT_EQ(combined_halves(ReduceOp::kAvg, DType::kBF16, {256, 1, 1}),
            float_from_bfloat16(bfloat16_from_float(256.0F / 3)));
  EXPECT_EQ(combined_halves(ReduceOp::kAvg, DType::kF16, {1, 0, 0}), float_from_float16(float16_from_float(1.0F / 3)));
}

TEST(Combine, Nan_WinsInMaxAndMinWhereverItStands) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum}) {
    for (const size_t place : {0, 1, 2}) {
      std::vector<std::vector<float>> terms{{1}, {2}, {3}};
      terms[place][0] = kNan;
      EXPECT_TRUE(std::isnan(combined(op, DType::kF32, terms)[0])) << place;
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        EXPECT_TRUE(std::isnan(combined_halves(op, dtype, {terms[0][0], terms[1][0], terms[2][0]}))) << place;
      }
    }
  }
}

TEST(Combine, ComplexNumbers_AddPartByPart) {
  EXPECT_EQ(combined<float>(ReduceOp::kSum, DType::kC64, {{1, 2, 3, 4}, {10, 20, 30, 40}}),
            (std::vector<float>{11, 22, 33, 44}));
  const float third = 1.0F / 3;
  EXPECT_EQ(combined<float>(ReduceOp::kAvg, DType::kC64, {{5, 7}, {0, 0}, {0, 0}}),
            (std::vector<float>{5 * third, 7 * third}));
}

TEST(Combine, OneMember_IsACopy) {
  for (const ReduceOp op : kAllOps) {
    EXPECT_EQ(combined<float>(op, DType::kF32, {{1.5F, -2}}), (std::vector<float>{1.5F, -2}));
  }
}

TEST(Combine, NoElements_AreCombinedToNone) {
  EXPECT_TRUE(combined<float>(ReduceOp::kSum, DType::kF32, {{}, {}}).empty());
}

TEST(Combine, LongTerms_AreCombinedToTheirEnd) {
  constexpr size_t kLong = 100'003;  // many chunks, and no multiple of a vector
  std::vector<std::vector<float>> terms(3, std::vector<float>(kLong));
  for (size_t i = 0; i < kLong; ++i) {
    terms[0][i] = static_cast<float>(i % 1000);
    terms[1][i] = 1;
    terms[2][i] = 2;
  }
  const std::vector<float> sums = combined(ReduceOp::kSum, DType::kF32, terms);
  for (size_t i = 0; i < kLong; ++i) ASSERT_EQ(sums[i], static_cast<float>(i % 1000) + 3) << i;
}

TEST(Combine, UnalignedBytes_AreCombinedAlike) {
  const std::vector<double> values{1, 2, 3};
  std::vector<std::byte> shifted(3 * sizeof(double) + 1);
  std::memcpy(shifted.data() + 1, values.data(), 3 * sizeof(double));
  std::vector<std::byte> output(shifted.size());
  const ConstBytes term = ConstBytes(shifted).subspan(1);
  combine_terms(combine_of(ReduceOp::kSum, 2), DType::kF64, std::vector{term, term}, std::span(output).subspan(1));
  std::vector<double> sums(3);
  std::memcpy(sums.data(), output.data() + 1, 3 * sizeof(double));
  EXPECT_EQ(sums, (std::vector<double>{2, 4, 6}));
}

std::string refusal(DType dtype, ReduceOp op) {
  return error_of([&] { check_reducible("redistribute", dtype, op); });
}

TEST(CheckReducible, ReductionThatTheDtypeLacks_IsRefused) {
  EXPECT_EQ(refusal(DType::kBool, ReduceOp::kSum), "Type: redistribute: the input is bool, which has no sum");
  EXPECT_EQ(refusal(DType::kBool, ReduceOp::kAvg), "Type: redistribute: the input is bool, which has no sum");
  EXPECT_EQ(refusal(DType::kBool, ReduceOp::kMax), "Type: redistribute: the input is bool, which has no max");
  EXPECT_EQ(refusal(DType::kC64, ReduceOp::kMax), "Type: redistribute: the input is complex, which has no max");
  EXPECT_EQ(refusal(DType::kC64, ReduceOp::kMin), "Type: redistribute: the input is complex, which has no min");
  EXPECT_EQ(refusal(DType::kI64, ReduceOp::kAvg), "Type: redistribute: Partial(avg) of I64 has no exact value");
  EXPECT_EQ(refusal(DType::kU8, ReduceOp::kAvg), "Type: redistribute: Partial(avg) of U8 has no exact value");
  EXPECT_EQ(refusal(DType::kF8E4M3, ReduceOp::kAvg), "Type: redistribute: the input is F8_E4M3, which has no sum");
  EXPECT_EQ(refusal(DType::kF4, ReduceOp::kMin), "Type: redistribute: the input is F4, which has no min");
}

TEST(CheckReducible, WhatIsAccepted_IsCombined) {
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kAllOps) {
      const std::vector<std::byte> zeros(static_cast<size_t>(bits_per_element(dtype)));
      std::vector<std::byte> output(zeros.size(), std::byte{1});
      const std::vector<ConstBytes> terms{zeros, zeros};
      const std::string said = error_of([&] { combine_terms(combine_of(op, 2), dtype, terms, output); });
      EXPECT_EQ(said, refusal(dtype, op)) << dtype;
      EXPECT_EQ(output == zeros, said == "no error") << dtype;
    }
  }
}

TEST(Combine, TermsOfOtherSizesOrNumber_AreRefused) {
  const std::vector<std::byte> eight(8);
  const std::vector<std::byte> four(4);
  std::vector<std::byte> output(8);
  const auto said = [&](DType dtype, const std::vector<ConstBytes>& terms) {
    return error_of([&] { combine_terms(combine_of(ReduceOp::kSum, 2), dtype, terms, output); });
  };
  EXPECT_EQ(said(DType::kF32, {eight}), "InvalidArgument: there are 1 terms but 2 members of the group");
  EXPECT_EQ(said(DType::kF32, {eight, four}), "InvalidArgument: a term has 4 bytes but the result 8");
  output.resize(7);
  EXPECT_EQ(said(DType::kF32, {ConstBytes(eight).first(7), ConstBytes(eight).first(7)}),
            "InvalidArgument: the result has 7 bytes, which are no whole elements of F32");
  EXPECT_EQ(error_of([&] { combine_terms(Combine{ReduceOp::kSum, 1, {}}, DType::kU8, {}, output); }),
            "InvalidArgument: there are 0 terms but 0 members of the group");
}

}  // namespace
}  // namespace hyper_parallel
