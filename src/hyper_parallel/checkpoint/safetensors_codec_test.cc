#include "hyper_parallel/checkpoint/safetensors_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/base/text.h"
#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"

namespace hyper_parallel {
namespace {

// One tensor of the given fields. entry("F32", "[1]", 0, 4) is four bytes that are right.
std::string entry(const std::string& dtype, const std::string& shape, uint64_t begin, uint64_t end) {
  return str_cat(R"({"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":[)", begin, ",", end, "]}");
}

std::string zeros(size_t count) { return std::string(count, '\0'); }

// Parses from heap blocks of exactly the size in question, so that a read past them is seen by AddressSanitizer: once
// the whole file, once only its header as if fetched by pread.
SafetensorsHeader parse(const std::string& file) {
  const auto copy = [](std::string_view bytes) {
    auto block = std::make_unique<std::byte[]>(bytes.size());
    std::ranges::copy(bytes_of(bytes), block.get());
    return block;
  };
  const auto size = static_cast<int64_t>(file.size());
  const auto whole = copy(file);
  const SafetensorsHeader header = parse_safetensors_header({whole.get(), file.size()}, size, "f.safetensors");

  const auto prefix = copy(std::string_view(file).substr(0, 8));
  const auto data_begin = static_cast<size_t>(safetensors_data_begin({prefix.get(), 8}, size, "f.safetensors"));
  const auto head = copy(std::string_view(file).substr(0, data_begin));
  EXPECT_EQ(parse_safetensors_header({head.get(), data_begin}, size, "f.safetensors"), header);
  return header;
}

void expect_refused(const std::string& file, const std::string& text) {
  expect_error(ErrorCode::kDataLoss, text, [&] { parse(file); });
  expect_error(ErrorCode::kDataLoss, "f.safetensors: ", [&] { parse(file); });
}

// A tensor 'a' of 4 bytes with these fields, for faults of one field.
void expect_fields_refused(const std::string& fields, const std::string& text) {
  expect_refused(file_of(R"({"a":{)" + fields + "}}", zeros(4)), text);
}

TEST(Case46_SafetensorsHeader, LengthOf2To64Minus1_IsRefused) {
  expect_refused(length_field(~uint64_t{0}) + "{}",
                 "the first 8 bytes declare a header of 18446744073709551615 bytes, over the limit of 100000000");
}

TEST(Case46_SafetensorsHeader, LengthPastTheFile_IsRefused) {
  expect_refused(length_field(3) + "{}", "the first 8 bytes declare a header of 3 bytes, but only 2 follow");
}

TEST(Case46_SafetensorsHeader, FileOf7Bytes_IsRefused) {
  expect_refused(length_field(2).substr(0, 7),
                 "the file has 7 bytes, but a safetensors file begins with a header length");
}

TEST(Case46_SafetensorsHeader, EndPastTheFile_IsRefused) {
  expect_refused(file_of(R"({"a":)" + entry("F32", "[2]", 0, 8) + "}", zeros(4)),
                 "the tensors take 8 bytes, but only 4 follow the header: the file is cut short");
}

TEST(Case46_SafetensorsHeader, BeginAfterEnd_IsRefused) {
  expect_refused(file_of(R"({"a":)" + entry("F32", "[1]", 4, 0) + "}", zeros(4)),
                 "tensor 'a' has data_offsets [4, 0), but they must satisfy 0 <= begin <= end");
}

TEST(Case46_SafetensorsHeader, ShapeLargerThanItsBytes_IsRefused) {
  expect_refused(
      file_of(R"({"a":)" + entry("F32", "[1000,1000]", 0, 4) + "}", zeros(4)),
      "tensor 'a' has data_offsets [0, 4), that is 4 bytes, but its shape (1000, 1000) of F32 takes 4000000");
}

TEST(Case46_SafetensorsHeader, Overlap_IsRefused) {
  const std::string json = R"({"a":)" + entry("F32", "[2]", 0, 8) + R"(,"b":)" + entry("F32", "[2]", 4, 12) + "}";
  expect_refused(file_of(json, zeros(12)), "tensor 'b' has data_offsets [4, 12), which overlap the tensor before it");
}

TEST(Case46_SafetensorsHeader, Hole_IsRefused) {
  const std::string json = R"({"a":)" + entry("F32", "[1]", 0, 4) + R"(,"b":)" + entry("F32", "[1]", 8, 12) + "}";
  expect_refused(file_of(json, zeros(12)), "tensor 'b' has data_offsets [8, 12), which leave a hole");
}

TEST(Case46_SafetensorsHeader, FiveTrailingBytes_AreRefused) {
  expect_refused(file_of(R"({"a":)" + entry("F32", "[1]", 0, 4) + "}", zeros(9)),
                 "the tensors take 4 bytes, but 9 follow the header, and every byte must belong to a tensor");
}

TEST(Case46_SafetensorsHeader, DuplicateName_WithOtherBytes_IsRefused) {
  const std::string json = R"({"a":)" + entry("F32", "[1]", 0, 4) + R"(,"a":)" + entry("F32", "[1]", 4, 8) + "}";
  expect_refused(file_of(json, zeros(8)), "tensor 'a' occurs twice");
}

TEST(Case46_SafetensorsHeader, DuplicateName_WithTheSameBytes_IsRefused) {
  const std::string json = R"({"a":)" + entry("F32", "[1]", 0, 4) + R"(,"a":)" + entry("F32", "[1]", 0, 4) + "}";
  expect_refused(file_of(json, zeros(4)), "tensor 'a' occurs twice");
}

TEST(Case46_SafetensorsHeader, UnknownDtype_IsRefused) {
  expect_refused(file_of(R"({"a":)" + entry("Q99", "[1]", 0, 4) + "}", zeros(4)),
                 "tensor 'a' has the unknown dtype 'Q99'");
}

TEST(Case46_SafetensorsHeader, ShapeProductOutsideInt64_IsRefused) {
  expect_refused(file_of(R"({"a":)" + entry("F32", "[4611686018427387904,4]", 0, 0) + "}"),
                 "tensor 'a' has shape (4611686018427387904, 4), whose number of elements does not fit in int64");
}

TEST(Case46_SafetensorsHeader, NegativeDim_IsRefused) {
  expect_refused(file_of(R"({"a":)" + entry("F32", "[-1]", 0, 4) + "}", zeros(4)),
                 "tensor 'a' shape must be a list of integers from 0 to 2^63-1, found -1");
}

TEST(Case46_SafetensorsHeader, JsonThatEndsEarly_IsRefused) {
  expect_refused(file_of(R"({"a":)"), "the header is not JSON at its byte 6: syntax error");
}

TEST(Case46_SafetensorsHeader, ListAtTheTop_IsRefused) {
  expect_refused(file_of("[]"), "the header must be a JSON object and begin with '{', found '['");
}

TEST(Case46_SafetensorsHeader, MetadataValueThatIsANumber_IsRefused) {
  expect_refused(file_of(R"({"__metadata__":{"k":1}})"), "__metadata__ 'k' must be a string, found 1");
  expect_refused(file_of(R"({"__metadata__":1})"), "__metadata__ must be an object of strings, found 1");
}

TEST(Case46_SafetensorsHeader, HundredThousandBrackets_AreRefused) {
  const std::string bomb(100'000, '[');
  expect_refused(file_of(bomb), "the header must be a JSON object");
  expect_refused(file_of(R"({"a":)" + bomb), "tensor 'a' must be an object, found a list");
  expect_refused(file_of(R"({"a":{"shape":)" + bomb), "tensor 'a' shape must be a list of integers");
  expect_refused(file_of(R"({"a":{"x":)" + bomb), "tensor 'a' has the unknown field 'x'");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  expect_refused(file_of(objects), "tensor 'a' has the unknown field 'a'");
}

TEST(Case46_SafetensorsHeader, EmptyObject_Opens) { EXPECT_EQ(parse(file_of("{}")), SafetensorsHeader()); }

TEST(Case46_SafetensorsHeader, ZeroDimensionalTensor_Opens) {
  const SafetensorsHeader header = parse(file_of(R"({"a":)" + entry("F32", "[]", 0, 4) + "}", zeros(4)));
  EXPECT_EQ(header.at("a"), (TensorEntry{"a", DType::kF32, {}, 0, 4}));
}

TEST(Case46_SafetensorsHeader, ZeroRowsOnZeroBytes_Open) {
  const SafetensorsHeader header = parse(file_of(R"({"a":)" + entry("F32", "[0,4]", 0, 0) + "}"));
  EXPECT_EQ(header.at("a"), (TensorEntry{"a", DType::kF32, {0, 4}, 0, 0}));
}

TEST(Case46_SafetensorsHeader, TrailingSpaces_Open) {
  const std::string json = R"({"a":)" + entry("F32", "[1]", 0, 4) + "}      ";
  EXPECT_EQ(parse(file_of(json, zeros(4))).data_size(), 4);
}

TEST(Case46_SafetensorsHeader, NamesNotInTheOrderOfTheirBytes_Open) {
  const std::string json = R"({"a":)" + entry("F32", "[1]", 4, 8) + R"(,"b":)" + entry("I32", "[1]", 0, 4) + "}";
  const SafetensorsHeader header = parse(file_of(json, zeros(8)));
  ASSERT_EQ(header.tensors().size(), 2U);
  EXPECT_EQ(header.tensors()[0], (TensorEntry{"b", DType::kI32, {1}, 0, 4}));
  EXPECT_EQ(header.tensors()[1], (TensorEntry{"a", DType::kF32, {1}, 4, 8}));
}

TEST(ParseSafetensorsHeader, EmptyFile_IsRefused) {
  expect_refused("", "the file is empty, not a safetensors file");
  expect_refused(file_of(""), "the header must be a JSON object and begin with '{', found nothing");
}

TEST(ParseSafetensorsHeader, EveryPrefixOfAFile_IsRefused) {
  const std::string json = R"({"__metadata__":{"k":"v"},"a":)" + entry("F32", "[1]", 0, 4) + "}";
  const std::string file = file_of(json, zeros(4));
  EXPECT_EQ(parse(file).data_size(), 4);
  for (size_t size = 0; size < file.size(); ++size) expect_refused(file.substr(0, size), "");
  // The same with a length field that fits, so that the JSON itself ends early.
  for (size_t size = 0; size < json.size(); ++size) expect_refused(file_of(json.substr(0, size)), "");
}

TEST(ParseSafetensorsHeader, FieldsOfATensor_MustBeThereOnceAndKnown) {
  expect_fields_refused(R"("shape":[1],"data_offsets":[0,4])", "tensor 'a' lacks the field 'dtype'");
  expect_fields_refused(R"("dtype":"F32","data_offsets":[0,4])", "tensor 'a' lacks the field 'shape'");
  expect_fields_refused(R"("dtype":"F32","shape":[1])", "tensor 'a' lacks the field 'data_offsets'");
  expect_fields_refused(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])",
                        "tensor 'a' has the field 'dtype' twice");
  expect_fields_refused(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)",
                        "tensor 'a' has the unknown field 'x'");
  EXPECT_EQ(parse(file_of(R"({"a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}})", zeros(4))).data_size(), 4);
}

TEST(ParseSafetensorsHeader, FieldOfAnotherJsonType_IsRefused) {
  const std::string tail = R"(,"shape":[1],"data_offsets":[0,4])";
  expect_fields_refused(R"("dtype":1)" + tail, "tensor 'a' dtype must be a string, found 1");
  expect_fields_refused(R"("dtype":null)" + tail, "tensor 'a' dtype must be a string, found null");
  expect_fields_refused(R"("dtype":{"F32":null})" + tail, "tensor 'a' dtype must be a string, found an object");
  expect_fields_refused(R"("shape":1)", "tensor 'a' shape must be a list of integers from 0 to 2^63-1, found 1");
  expect_fields_refused(R"("shape":[true])", "shape must be a list of integers from 0 to 2^63-1, found true");
  expect_fields_refused(R"("shape":[[1]])", "shape must be a list of integers from 0 to 2^63-1, found a list");
  expect_fields_refused(R"("shape":["1"])", "shape must be a list of integers from 0 to 2^63-1, found '1'");
  expect_fields_refused(R"("data_offsets":{"begin":0})", "data_offsets must be a list of 2 integers");
  expect_refused(file_of(R"({"a":["F32",[1],[0,4]]})", zeros(4)), "tensor 'a' must be an object, found a list");
  expect_refused(file_of(R"({"a":null})"), "tensor 'a' must be an object, found null");
}

TEST(ParseSafetensorsHeader, NumberThatIsNotAnInt64_IsRefused) {
  expect_fields_refused(R"("shape":[18446744073709551616])", "from 0 to 2^63-1, found 18446744073709551616");
  expect_fields_refused(R"("shape":[9223372036854775808])", "from 0 to 2^63-1, found 9223372036854775808");
  expect_fields_refused(R"("shape":[1.0])", "from 0 to 2^63-1, found 1.0");
  expect_fields_refused(R"("shape":[4e0])", "from 0 to 2^63-1, found 4e0");
  expect_fields_refused(R"("shape":[-0])", "from 0 to 2^63-1, found -0");
  expect_fields_refused(R"("shape":[1e999])", "the header is not JSON at its byte");
  expect_fields_refused(R"("shape":[NaN])", "the header is not JSON at its byte");
  expect_fields_refused(R"("shape":[01])", "the header is not JSON at its byte");
}

TEST(ParseSafetensorsHeader, DataOffsets_MustBeTwo) {
  expect_fields_refused(R"("data_offsets":[])",
                        "data_offsets must be a list of 2 integers from 0 to 2^63-1, found a list of 0");
  expect_fields_refused(R"("data_offsets":[0])", "found a list of 1");
  expect_fields_refused(R"("data_offsets":[0,4,4])", "found a third item");
}

TEST(ParseSafetensorsHeader, Metadata_IsKeptAndMustBeUnique) {
  const SafetensorsMetadata expected = {{"", ""}, {"format", "pt"}, {"k\n", "\u5c42"}};
  EXPECT_EQ(parse(file_of(R"({"__metadata__":{"format":"pt","k\n":"\u5c42","":""}})")).metadata(), expected);
  EXPECT_TRUE(parse(file_of(R"({"__metadata__":{}})")).metadata().empty());
  expect_refused(file_of(R"({"__metadata__":{"k":"1"},"__metadata__":{"k":"1"}})"), "__metadata__ occurs twice");
  expect_refused(file_of(R"({"__metadata__":{"k":"1","k":"2"}})"), "__metadata__ has the key 'k' twice");
  expect_refused(file_of(R"({"__metadata__":null})"), "__metadata__ must be an object of strings, found null");
  expect_refused(file_of(R"({"__metadata__":{"k":{}}})"), "__metadata__ 'k' must be a string, found an object");
}

TEST(ParseSafetensorsHeader, TextAroundTheObject_IsRefused) {
  expect_refused(file_of(" {}"), "begin with '{', found ' '");
  expect_refused(file_of("\xef\xbb\xbf{}"), R"(begin with '{', found '\xef')");
  expect_refused(file_of("{}x"), "the header is not JSON at its byte 3");
  expect_refused(file_of("{}{}"), "the header is not JSON at its byte 3");
  expect_refused(file_of("{/**/}"), "the header is not JSON at its byte 2");
}

TEST(ParseSafetensorsHeader, ZeroByte_DoesNotEndTheJson) {
  expect_refused(file_of(std::string_view("{}\0\0\0", 5)), "it holds a zero byte at 2");
  expect_refused(file_of(std::string_view("{}\0x", 4)), "it holds a zero byte at 2");
  const std::string json = R"({"a\u0000b":)" + entry("F32", "[1]", 0, 4) + "}";  // an escaped one is text
  EXPECT_EQ(parse(file_of(json, zeros(4))).tensors()[0].name, std::string("a\0b", 3));
}

TEST(ParseSafetensorsHeader, NameThatIsNotUtf8_IsRefused) {
  const std::string tail = "\":" + entry("F32", "[1]", 0, 4) + "}";
  for (const std::string name : {"\xff", "\xc0\x80", "\xed\xa0\x80", R"(\ud800)", "a\n"}) {
    expect_refused(file_of("{\"" + name + tail, zeros(4)), "the header is not JSON at its byte");
  }
}

TEST(ParseSafetensorsHeader, NamesThatAreEqualOnceUnescaped_AreDuplicates) {
  const std::string json = R"({"a":)" + entry("F32", "[1]", 0, 4) + R"(,"\u0061":)" + entry("F32", "[1]", 4, 8) + "}";
  expect_refused(file_of(json, zeros(8)), "tensor 'a' occurs twice");
}

TEST(ParseSafetensorsHeader, SubByteTensor_MustFillWholeBytes) {
  EXPECT_EQ(parse(file_of(R"({"a":)" + entry("F6_E2M3", "[8]", 0, 6) + "}", zeros(6))).data_size(), 6);
  expect_refused(file_of(R"({"a":)" + entry("F4", "[3]", 0, 2) + "}", zeros(2)),
                 "tensor 'a' has shape (3,) of F4, which takes 12 bits, but a tensor must fill whole bytes");
}

TEST(ParseSafetensorsHeader, LongTextOfAFile_IsCutInTheMessage) {
  const std::string text(1'000'000, 'x');
  for (const std::string& json : {R"({")" + text + R"(":1})", R"({"a":{"dtype":")" + text + R"("}})", "{}" + text}) {
    try {
      parse(file_of(json));
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 500U);
    }
  }
}

TEST(ParseSafetensorsHeader, HeadTooShortForItsFile_IsTheCallersFault) {
  const std::string file = file_of("{}");
  expect_error(ErrorCode::kInvalidArgument, "head has 7 bytes, but the header length takes 8",
               [&] { parse_safetensors_header(bytes_of(file).first(7), 10, "f"); });
  expect_error(ErrorCode::kInvalidArgument, "head has 9 bytes, but the header ends at byte 10",
               [&] { parse_safetensors_header(bytes_of(file).first(9), 10, "f"); });
}

TEST(SafetensorsDataBegin, NeedsOnlyTheFirst8Bytes) {
  EXPECT_EQ(safetensors_data_begin(bytes_of(length_field(16)), 1000, "f"), 24);
  EXPECT_EQ(safetensors_data_begin(bytes_of(length_field(16)), 24, "f"), 24);
  expect_error(ErrorCode::kDataLoss, "f: the first 8 bytes declare a header of 16 bytes, but only 15 follow",
               [] { safetensors_data_begin(bytes_of(length_field(16)), 23, "f"); });
}

TEST(SafetensorsDataBegin, LimitOfTheHeader_IsInclusive) {
  EXPECT_EQ(safetensors_data_begin(bytes_of(length_field(100'000'000)), 200'000'000, "f"), 100'000'008);
  expect_error(ErrorCode::kDataLoss,
               "f: the first 8 bytes declare a header of 100000001 bytes, over the limit of 100000000",
               [] { safetensors_data_begin(bytes_of(length_field(100'000'001)), 200'000'000, "f"); });
}

// The bytes that safetensors 0.8.0 writes for the same tensors.
TEST(WriteSafetensorsHeader, Bytes_AreThoseOfTheStockLibrary) {
  const SafetensorsHeader header = arrange_tensors(
      {{"d", DType::kBool, {3}}, {"c", DType::kU8, {0, 3}}, {"b", DType::kF32, {2}}, {"a", DType::kI64, {}}},
      {{"format", "pt"}});
  const std::string json = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
                           R"("c":{"dtype":"U8","shape":[0,3],"data_offsets":[16,16]},)"
                           R"("d":{"dtype":"BOOL","shape":[3],"data_offsets":[16,19]}})";
  EXPECT_EQ(write_safetensors_header(header), file_of(json + std::string((8 - json.size() % 8) % 8, ' ')));
}

TEST(WriteSafetensorsHeader, EmptyHeader_IsPaddedTo8Bytes) {
  EXPECT_EQ(write_safetensors_header(SafetensorsHeader()), file_of("{}      "));
}

TEST(WriteSafetensorsHeader, ParseOfWritten_IsTheSameHeader) {
  std::vector<TensorSpec> specs;
  for (const DType dtype : all_dtypes()) specs.push_back({str_cat("\u5c42.", dtype), dtype, {2, 4}});
  specs.push_back({"", DType::kF32, {}});
  specs.push_back({std::string("a\0\n\"\\/\x1b\x7f", 8), DType::kF64, {0, int64_t{1} << 40}});
  specs.push_back({std::string(5000, 'n'), DType::kU8, std::vector<int64_t>(100, 1)});
  const SafetensorsHeader header = arrange_tensors(specs, {{"", "\t"}, {"format", "\U0001f600"}, {"z", ""}});
  const std::string bytes = write_safetensors_header(header);
  EXPECT_EQ(bytes.size() % 8, 0U);
  EXPECT_EQ(parse(bytes + zeros(static_cast<size_t>(header.data_size()))), header);
}

TEST(WriteSafetensorsHeader, HeaderOverTheLimit_IsRefused) {
  const SafetensorsHeader header({}, {{"k", std::string(static_cast<size_t>(kMaxSafetensorsHeaderBytes), 'x')}});
  expect_error(ErrorCode::kInvalidArgument,
               "the header of 0 tensors takes 100000032 bytes, over the limit of 100000000",
               [&] { write_safetensors_header(header); });
}

}  // namespace
}  // namespace hyper_parallel
