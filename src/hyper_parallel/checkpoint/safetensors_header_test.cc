#include "hyper_parallel/checkpoint/safetensors_header.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

TensorEntry u8(std::string name, int64_t begin, int64_t end) {
  return {std::move(name), DType::kU8, {end - begin}, begin, end};
}

void expect_refused(std::vector<TensorEntry> tensors, const std::string& text) {
  expect_error(ErrorCode::kInvalidArgument, text, [&] { SafetensorsHeader(std::move(tensors)); });
}

std::string names_in_order(const SafetensorsHeader& header) {
  std::string names;
  for (const TensorEntry& tensor : header.tensors()) names += tensor.name;
  return names;
}

TEST(SafetensorsHeader, Default_IsAnEmptyFile) {
  const SafetensorsHeader header;
  EXPECT_TRUE(header.tensors().empty());
  EXPECT_EQ(header.data_size(), 0);
  EXPECT_EQ(header, SafetensorsHeader(std::vector<TensorEntry>{}));
}

TEST(SafetensorsHeader, EntriesInAnyOrder_StandInTheOrderOfTheirBytes) {
  const SafetensorsHeader header({u8("c", 5, 9), u8("a", 0, 2), u8("b", 2, 5)}, {{"format", "pt"}});
  EXPECT_EQ(names_in_order(header), "abc");
  EXPECT_EQ(header.data_size(), 9);
  EXPECT_EQ(header.metadata().at("format"), "pt");
  EXPECT_EQ(header, SafetensorsHeader({u8("a", 0, 2), u8("b", 2, 5), u8("c", 5, 9)}, {{"format", "pt"}}));
}

TEST(SafetensorsHeader, EmptyTensors_MayStandAtEverySeam) {
  const SafetensorsHeader header(
      {u8("z", 4, 4), u8("y", 2, 2), u8("x", 0, 0), u8("w", 0, 0), u8("a", 0, 2), u8("b", 2, 4)});
  EXPECT_EQ(names_in_order(header), "wxaybz");
}

TEST(SafetensorsHeader, EmptyTensorInsideAnother_IsRefused) {
  expect_refused({u8("a", 0, 4), u8("z", 2, 2)},
                 "tensor 'z' has data_offsets [2, 2), which overlap the tensor before it, that ends at byte 4");
}

TEST(SafetensorsHeader, Find_GivesTheEntryOfThatNameOrNothing) {
  const SafetensorsHeader header({u8("b", 0, 2), u8("a", 2, 5), u8("", 5, 6)});
  ASSERT_NE(header.find("a"), nullptr);
  EXPECT_EQ(*header.find("a"), u8("a", 2, 5));
  EXPECT_EQ(header.at("").begin, 5);
  EXPECT_EQ(header.find("aa"), nullptr);
  EXPECT_EQ(header.find("c"), nullptr);
}

TEST(SafetensorsHeader, At_UnknownName_IsRefused) {
  const SafetensorsHeader header({u8("a", 0, 2)});
  expect_error(ErrorCode::kInvalidArgument, "there is no tensor 'w' among the 1 of the file", [&] { header.at("w"); });
}

TEST(SafetensorsHeader, NameTwice_IsRefused) {
  expect_refused({u8("a", 0, 2), u8("b", 2, 3), u8("a", 3, 5)}, "tensor 'a' occurs twice, but a name must be unique");
}

TEST(SafetensorsHeader, Hole_IsRefused) {
  expect_refused({u8("a", 0, 2), u8("b", 3, 5)},
                 "tensor 'b' has data_offsets [3, 5), which leave a hole: no tensor holds the bytes from 2");
  expect_refused({u8("a", 1, 2)}, "no tensor holds the bytes from 0");
}

TEST(SafetensorsHeader, NegativeOrReversedRange_IsRefused) {
  expect_refused({{"a", DType::kU8, {1}, -1, 0}}, "tensor 'a' has data_offsets [-1, 0), but they must satisfy");
  expect_refused({{"a", DType::kU8, {1}, 1, 0}}, "tensor 'a' has data_offsets [1, 0), but they must satisfy");
}

TEST(SafetensorsHeader, RangeThatIsNotTheSizeOfShapeAndType_IsRefused) {
  expect_refused({{"a", DType::kF32, {2, 3}, 0, 20}},
                 "tensor 'a' has data_offsets [0, 20), that is 20 bytes, but its shape (2, 3) of F32 takes 24");
}

TEST(SafetensorsHeader, ReservedOrIllFormedName_IsRefused) {
  expect_refused({u8("__metadata__", 0, 2)}, "a tensor must not be named '__metadata__'");
  expect_refused({u8("a\xff", 0, 2)}, "tensor 'a\\xff' has a name that is not UTF-8");
  expect_error(ErrorCode::kInvalidArgument, "__metadata__ entry 'k' is not UTF-8",
               [] { SafetensorsHeader({}, {{"k", "\xc0"}}); });
}

TEST(ArrangeTensors, PlacesByDescendingTypeThenName_WithoutGaps) {
  const SafetensorsHeader header = arrange_tensors({{"d", DType::kBool, {3}},
                                                    {"b", DType::kF32, {2}},
                                                    {"e", DType::kF4, {2, 2}},
                                                    {"c", DType::kF32, {0, 3}},
                                                    {"a", DType::kI64, {}}});
  const std::vector<TensorEntry> expected = {{"a", DType::kI64, {}, 0, 8},
                                             {"b", DType::kF32, {2}, 8, 16},
                                             {"c", DType::kF32, {0, 3}, 16, 16},
                                             {"e", DType::kF4, {2, 2}, 16, 18},
                                             {"d", DType::kBool, {3}, 18, 21}};
  EXPECT_EQ(header.tensors(), expected);
}

TEST(ArrangeTensors, EmptyTensorsAtOnePlace_KeepTheOrderOfTypeThenName) {
  const SafetensorsHeader header = arrange_tensors(
      {{"a", DType::kU8, {0}}, {"b", DType::kI64, {0}}, {"c", DType::kI64, {0}}, {"d", DType::kU64, {0}}});
  EXPECT_EQ(names_in_order(header), "dbca");
}

TEST(ArrangeTensors, EveryTensor_IsAlignedToItsElement) {
  std::vector<TensorSpec> specs;
  for (const DType dtype : all_dtypes()) specs.push_back({std::string(to_string(dtype)), dtype, {4}});
  const SafetensorsHeader header = arrange_tensors(specs);
  ASSERT_EQ(header.tensors().size(), all_dtypes().size());
  for (const TensorEntry& tensor : header.tensors()) {
    if (bits_per_element(tensor.dtype) >= 8) {
      EXPECT_EQ(tensor.begin % (bits_per_element(tensor.dtype) / 8), 0) << tensor.name;
    }
  }
}

TEST(ArrangeTensors, BadSpecs_AreRefused) {
  const int64_t huge = int64_t{1} << 59;  // bytes of a tensor whose number of bits still fits
  expect_error(ErrorCode::kInvalidArgument, "tensor 'a' occurs twice",
               [] { arrange_tensors({{"a", DType::kU8, {1}}, {"a", DType::kF32, {1}}}); });
  expect_error(ErrorCode::kInvalidArgument, "tensor 'a' has shape (3,) of F4, which takes 12 bits",
               [] { arrange_tensors({{"a", DType::kF4, {3}}}); });
  expect_error(ErrorCode::kInvalidArgument, "does not fit in int64", [&] {
    std::vector<TensorSpec> specs;
    for (char c = 'a'; c < 'a' + 17; ++c) specs.push_back({std::string(1, c), DType::kU8, {huge}});
    arrange_tensors(specs);
  });
}

}  // namespace
}  // namespace hyper_parallel
