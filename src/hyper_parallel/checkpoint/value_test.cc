#include "hyper_parallel/checkpoint/value.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "tests/support/expect_error.h"
#include "tests/support/value_samples.h"

namespace hyper_parallel {
namespace {

void expect_refused(const Value& value, const std::string& text) {
  expect_error(ErrorCode::kInvalidArgument, text, [&] { check_value(value, "value 'x'"); });
}

TEST(Value, Equality_IsOfTypeAndBits_SoEachSampleEqualsItselfAlone) {
  const std::vector<Value> samples = value_samples();
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t j = 0; j < samples.size(); ++j) {
      EXPECT_EQ(samples[i] == samples[j], i == j) << to_string(samples[i]) << " and " << to_string(samples[j]);
    }
  }
}

TEST(Value, NumbersOfOtherTypes_AreOtherValues) {
  EXPECT_NE(Value(int64_t{1}), Value(true));
  EXPECT_NE(Value(int64_t{1}), Value(1.0));
  EXPECT_NE(Value("a"), Value(Bytes{"a"}));
  EXPECT_NE(Value(ValueList{}), Value(ValueTuple{}));
  EXPECT_TRUE(Value().is_none());
  EXPECT_FALSE(Value(false).is_none());
}

TEST(Value, DictsOfAnotherOrder_AreOtherValues) {
  const Value ab(ValueDict{{{Value("a"), Value()}, {Value("b"), Value()}}});
  const Value ba(ValueDict{{{Value("b"), Value()}, {Value("a"), Value()}}});
  EXPECT_NE(ab, ba);
}

TEST(ValueText, IsWhatPythonPrints) {
  const ValueDict dict{{{Value("lr"), Value(0.1)},
                        {Value("betas"), Value(ValueTuple{{Value(0.9), Value(0.999)}})},
                        {Value(int64_t{7}), Value()}}};
  EXPECT_EQ(to_string(Value(dict)), "{'lr': 0.1, 'betas': (0.9, 0.999), 7: None}");
  EXPECT_EQ(to_string(Value(ValueTuple{{Value(true)}})), "(True,)");
  EXPECT_EQ(to_string(Value(ValueTuple{})), "()");
  EXPECT_EQ(to_string(Value(ValueList{{Value(false), Value(ValueDict{})}})), "[False, {}]");
  EXPECT_EQ(to_string(Value(BigInteger{"-9223372036854775809"})), "-9223372036854775809");
}

TEST(ValueText, Floats_HavePythonsNotation) {
  EXPECT_EQ(to_string(Value(1.0)), "1.0");
  EXPECT_EQ(to_string(Value(-0.0)), "-0.0");
  EXPECT_EQ(to_string(Value(0.0001)), "0.0001");
  EXPECT_EQ(to_string(Value(0.00001)), "1e-05");
  EXPECT_EQ(to_string(Value(1e15)), "1000000000000000.0");
  EXPECT_EQ(to_string(Value(1e16)), "1e+16");
  EXPECT_EQ(to_string(Value(9999999999999998.0)), "9999999999999998.0");
  EXPECT_EQ(to_string(Value(1.7976931348623157e308)), "1.7976931348623157e+308");
  EXPECT_EQ(to_string(Value(std::numeric_limits<double>::infinity())), "inf");
  EXPECT_EQ(to_string(Value(-std::numeric_limits<double>::infinity())), "-inf");
  EXPECT_EQ(to_string(Value(std::numeric_limits<double>::quiet_NaN())), "nan");
}

TEST(ValueText, Complex_HasPythonsParentheses) {
  EXPECT_EQ(to_string(Value(std::complex<double>(1, 2))), "(1+2j)");
  EXPECT_EQ(to_string(Value(std::complex<double>(1.5, -0.0))), "(1.5-0j)");
  EXPECT_EQ(to_string(Value(std::complex<double>(0, 2))), "2j");
  EXPECT_EQ(to_string(Value(std::complex<double>(-0.0, 2))), "(-0+2j)");
}

TEST(ValueText, Text_IsQuotedAndOneLine) {
  EXPECT_EQ(to_string(Value("plain")), "'plain'");
  EXPECT_EQ(to_string(Value("it's")), "\"it's\"");
  EXPECT_EQ(to_string(Value("it's \"it\"")), R"('it\'s "it"')");
  EXPECT_EQ(to_string(Value("a\\b\n\r\t\x1b")), R"('a\\b\n\r\t\x1b')");
  EXPECT_EQ(to_string(Value("\xc3\xa9 \xc2\x85")), "'\xc3\xa9 \\x85'");
  EXPECT_EQ(to_string(Value(Bytes{std::string("a'\0\xff\n", 5)})), R"(b"a'\x00\xff\n")");
}

TEST(CheckValue, EverySample_Passes) {
  for (const Value& value : value_samples()) EXPECT_NO_THROW(check_value(value, "value 'x'")) << to_string(value);
}

TEST(CheckValue, NestingOf64_PassesAndOf65_IsRefused) {
  EXPECT_NO_THROW(check_value(nested_lists(kMaxValueDepth), "value 'x'"));
  expect_refused(nested_lists(kMaxValueDepth + 1), "value 'x' is nested deeper than 64 levels");
}

TEST(CheckValue, TextThatIsNotUtf8_IsRefusedWhereverItStands) {
  expect_refused(Value("\xff"), "value 'x' has the text '\\xff', which is not UTF-8");
  expect_refused(ValueDict{{{Value("\xff"), Value()}}}, "which is not UTF-8");
  expect_refused(ValueTuple{{ValueList{{Value("\xff")}}}}, "which is not UTF-8");
}

TEST(CheckValue, KeyTwice_IsRefused) {
  const Value twice(ValueDict{{{Value("a"), Value()}, {Value("b"), Value()}, {Value("a"), Value(true)}}});
  expect_refused(twice, "value 'x' has a dict with the key 'a' twice");
  expect_refused(ValueList{{twice}}, "value 'x' has a dict with the key 'a' twice");
  EXPECT_NO_THROW(check_value(ValueDict{{{Value(true), Value()}, {Value(int64_t{1}), Value()}}}, "value 'x'"));
}

TEST(CheckValue, DigitsThatAreNoBigInteger_AreRefused) {
  for (const char* digits : {"", "-", "7", "9223372036854775807", "-9223372036854775808", "09223372036854775808",
                             "+9223372036854775808", "9223372036854775808.0", "1e30", " 9223372036854775808"}) {
    expect_refused(BigInteger{digits}, "but its digits must be an integer outside int64 without leading zeros");
  }
}

}  // namespace
}  // namespace hyper_parallel
