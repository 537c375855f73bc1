#include "hyper_parallel/checkpoint/value_json.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "tests/support/expect_error.h"
#include "tests/support/value_samples.h"

namespace hyper_parallel {
namespace {

// Reading is tested through the whole text, in metadata_parser_test.cc.

std::string json_of(const Value& value) {
  std::string text;
  append_json_value(text, value);
  return text;
}

TEST(ValueJson, EachKind_HasItsNotation) {
  EXPECT_EQ(json_of(Value()), "null");
  EXPECT_EQ(json_of(true), "true");
  EXPECT_EQ(json_of(int64_t{-7}), "-7");
  EXPECT_EQ(json_of(BigInteger{"9223372036854775808"}), R"({"int":"9223372036854775808"})");
  EXPECT_EQ(json_of("text"), R"("text")");
  EXPECT_EQ(json_of(Bytes{"any"}), R"({"bytes":"YW55"})");
  EXPECT_EQ(json_of(ValueList{{Value(int64_t{1}), Value()}}), "[1,null]");
  EXPECT_EQ(json_of(ValueTuple{{Value(int64_t{1})}}), R"({"tuple":[1]})");
  EXPECT_EQ(json_of(ValueDict{{{Value(int64_t{1}), Value("a")}, {Value("b"), Value(ValueList{})}}}),
            R"({"dict":[[1,"a"],["b",[]]]})");
}

TEST(ValueJson, Floats_AreNeverTakenForIntegers) {
  EXPECT_EQ(json_of(1.0), "1.0");
  EXPECT_EQ(json_of(-0.0), "-0.0");
  EXPECT_EQ(json_of(0.1), "0.1");
  EXPECT_EQ(json_of(1e22), "1e+22");
  EXPECT_EQ(json_of(std::numeric_limits<double>::infinity()), R"({"float":"inf"})");
  EXPECT_EQ(json_of(-std::numeric_limits<double>::infinity()), R"({"float":"-inf"})");
  EXPECT_EQ(json_of(std::bit_cast<double>(uint64_t{0x7ff8000000000000})), R"({"float":"nan"})");
  EXPECT_EQ(json_of(std::bit_cast<double>(uint64_t{0xfff8000000000000})), R"({"float":"nan:fff8000000000000"})");
  EXPECT_EQ(json_of(std::complex<double>(1, -0.0)), R"({"complex":[1.0,-0.0]})");
}

TEST(ValueJson, Text_IsEscapedWhereJsonNeedsIt) {
  EXPECT_EQ(json_of("a\"b\\c\nd"), R"("a\"b\\c\nd")");
  EXPECT_EQ(json_of(std::string("\0\x7f", 2)), "\"\\u0000\x7f\"");
  EXPECT_EQ(json_of("\xc3\xa9"), "\"\xc3\xa9\"");
}

TEST(ValueJson, WhatCannotBeRead_IsNotWritten) {
  expect_error(ErrorCode::kInvalidArgument, "the text '\\xff' is not UTF-8", [] { json_of("\xff"); });
  EXPECT_NO_THROW(json_of(nested_lists(kMaxValueDepth)));
  expect_error(ErrorCode::kInvalidArgument, "a value is nested deeper than 64 levels",
               [] { json_of(nested_lists(kMaxValueDepth + 1)); });
}

}  // namespace
}  // namespace hyper_parallel
