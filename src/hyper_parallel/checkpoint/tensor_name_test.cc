#include "hyper_parallel/checkpoint/tensor_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hyper_parallel {
namespace {

TEST(Utf8, WellFormedText_OfAnyLength_IsAccepted) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8(std::string("a\0b", 3)));
  EXPECT_TRUE(is_utf8("\u00b5 \u5c42 \U0001f600"));
  EXPECT_EQ(utf8_sequence_length("a"), 1U);
  EXPECT_EQ(utf8_sequence_length("\u00b5"), 2U);
  EXPECT_EQ(utf8_sequence_length("\u5c42"), 3U);
  EXPECT_EQ(utf8_sequence_length("\U0001f600"), 4U);
}

TEST(Utf8, IllFormedBytes_AreRefused) {
  const std::vector<std::string> bad = {
      "\x80",              // a continuation byte alone
      "\xc3",              // cut short
      "\xe5\xb1",          // cut short
      "\xc3\x28",          // no continuation byte
      "\xc0\x80",          // overlong
      "\xe0\x80\x80",      // overlong
      "\xf0\x80\x80\x80",  // overlong
      "\xed\xa0\x80",      // a surrogate
      "\xf4\x90\x80\x80",  // over U+10FFFF
      "\xff",
  };
  for (const std::string& text : bad) {
    EXPECT_FALSE(is_utf8(text)) << printable(text);
    EXPECT_FALSE(is_utf8("a" + text + "b")) << printable(text);
    EXPECT_EQ(utf8_sequence_length(text), 0U) << printable(text);
  }
  EXPECT_EQ(utf8_sequence_length(""), 0U);
}

TEST(Printable, OrdinaryText_IsUnchanged) { EXPECT_EQ(printable("layer.0/w \u5c42 'x'"), "layer.0/w \u5c42 'x'"); }

TEST(Printable, ControlCharactersAndBadBytes_AreEscaped) {
  EXPECT_EQ(printable(std::string("a\n\x1b[31m\0\x7f", 9)), R"(a\x0a\x1b[31m\x00\x7f)");
  EXPECT_EQ(printable("\u0085\u009b"), R"(\xc2\x85\xc2\x9b)");
  EXPECT_EQ(printable("\xff\u00e4\xc3"), "\\xff\u00e4\\xc3");
  EXPECT_EQ(printable("\u00a0"), "\u00a0");  // the first code point after the C1 controls
}

TEST(QuotedName, ShortName_IsShownWhole) {
  EXPECT_EQ(quoted_name(""), "''");
  EXPECT_EQ(quoted_name("w"), "'w'");
  EXPECT_EQ(quoted_name(std::string(kQuotedNameBytes, 'x')), "'" + std::string(kQuotedNameBytes, 'x') + "'");
}

TEST(QuotedName, LongName_IsCutAtACharacterWithItsLength) {
  EXPECT_EQ(quoted_name(std::string(1000, 'x')), "'" + std::string(kQuotedNameBytes, 'x') + "...' (1000 bytes)");
  const std::string odd = std::string(kQuotedNameBytes - 1, 'x') + "\u00e4\u00e4";
  EXPECT_EQ(quoted_name(odd), "'" + std::string(kQuotedNameBytes - 1, 'x') + "...' (203 bytes)");
}

TEST(ShapeText, Shape_IsAPythonTuple) {
  EXPECT_EQ(shape_text({}), "()");
  EXPECT_EQ(shape_text(std::vector<int64_t>{5}), "(5,)");
  EXPECT_EQ(shape_text(std::vector<int64_t>{6, 4}), "(6, 4)");
}

TEST(ShapeText, ShapeOfManyDims_IsCutWithTheirCount) {
  const std::vector<int64_t> shape(1'000'000, 1);
  EXPECT_EQ(shape_text(shape), "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ...) (1000000 dims)");
}

}  // namespace
}  // namespace hyper_parallel
