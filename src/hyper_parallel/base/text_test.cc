#include "hyper_parallel/base/text.h"

#include <gtest/gtest.h>

#include <functional>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

using namespace std::string_view_literals;

void expect_unreadable(const std::function<void()>& read, const std::string& message) {
  try {
    read();
    FAIL() << "read instead of raising: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.what(), message);
  }
}

TEST(StrCat, JoinsUnlikeParts) { EXPECT_EQ(str_cat("dim ", 3, '/', std::string("tp")), "dim 3/tp"); }

TEST(Join, PutsTheSeparatorBetweenOnly) {
  EXPECT_EQ(join(std::vector<int64_t>{}, ", "), "");
  EXPECT_EQ(join(std::vector<int64_t>{4}, ", "), "4");
  EXPECT_EQ(join(std::vector<int64_t>{1, 0, -1}, ", "), "1, 0, -1");
}

TEST(TupleText, IsPythons) {
  EXPECT_EQ(tuple_text(std::vector<int64_t>{}), "()");
  EXPECT_EQ(tuple_text(std::vector<int64_t>{5}), "(5,)");
  EXPECT_EQ(tuple_text(std::vector<int64_t>{6, 4, 8}), "(6, 4, 8)");
}

TEST(Scanner, ReadsTokensAcrossWhiteSpace) {
  Scanner scanner(" Shard ( -3 )\n"sv);
  EXPECT_EQ(scanner.identifier(), "Shard");
  scanner.expect("(");
  EXPECT_EQ(scanner.integer(), -3);
  EXPECT_FALSE(scanner.accept(","));
  EXPECT_TRUE(scanner.accept(")"));
  EXPECT_TRUE(scanner.at_end());
  scanner.finish();
}

TEST(Scanner, RefusedToken_LeavesThePosition) {
  Scanner scanner("abc"sv);
  EXPECT_FALSE(scanner.accept("abd"));
  EXPECT_EQ(scanner.identifier(), "abc");
}

TEST(Scanner, IntegerTuple_ReadsWhatTupleTextPrints) {
  for (const auto& values : {std::vector<int64_t>{}, {5}, {6, 4, 8}, {-1, 0}}) {
    const std::string text = tuple_text(values);
    Scanner scanner(text);
    EXPECT_EQ(scanner.integer_tuple(), values);
    scanner.finish();
  }
}

TEST(Scanner, IntegerTuple_TakesOtherBrackets) {
  Scanner scanner("[1,2]"sv);
  EXPECT_EQ(scanner.integer_tuple("[", "]"), (std::vector<int64_t>{1, 2}));
}

TEST(Scanner, IntegerLimits_AreReadExactly) {
  Scanner scanner("-9223372036854775808 9223372036854775807"sv);
  EXPECT_EQ(scanner.integer(), INT64_MIN);
  EXPECT_EQ(scanner.integer(), INT64_MAX);
}

TEST(Scanner, IntegerPastInt64_Raises) {
  expect_unreadable([] { Scanner("9223372036854775808"sv).integer(); },
                    "cannot read '9223372036854775808': expected an int64 at position 0");
}

TEST(Scanner, WrongToken_RaisesWithTextAndPosition) {
  expect_unreadable(
      [] {
        Scanner scanner("Shard[0]"sv);
        scanner.identifier();
        scanner.expect("(");
      },
      "cannot read 'Shard[0]': expected '(' at position 5");
}

TEST(Scanner, MissingName_Raises) {
  expect_unreadable([] { Scanner("  ("sv).identifier(); }, "cannot read '  (': expected a name at position 2");
}

TEST(Scanner, TupleWithoutComma_Raises) {
  expect_unreadable([] { Scanner("(1 2)"sv).integer_tuple(); }, "cannot read '(1 2)': expected ',' at position 3");
}

TEST(Scanner, TupleThatEnds_Raises) {
  expect_unreadable([] { Scanner("(1,"sv).integer_tuple(); }, "cannot read '(1,': expected an int64 at position 3");
}

TEST(Scanner, RestOfText_Raises) {
  expect_unreadable(
      [] {
        Scanner scanner("7 x"sv);
        scanner.integer();
        scanner.finish();
      },
      "cannot read '7 x': expected the end at position 2");
}

}  // namespace
}  // namespace hyper_parallel
