#include "hyper_parallel/tools/text_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace hyper_parallel {
namespace {

std::string rows_text(const std::vector<TableRow>& rows, size_t right_from) {
  std::ostringstream out;
  print_rows(rows, right_from, out);
  return out.str();
}

TEST(PrintRows, ColumnsAreInLine_LeftAndRight) {
  EXPECT_EQ(rows_text({{"name", "size", "n"}, {"a", "10 B", "12"}}, 1), "name  size   n\na     10 B  12\n");
}

TEST(PrintRows, LastColumnFlushLeft_HasNoTrailingBlanks) {
  EXPECT_EQ(rows_text({{"a", "long"}, {"bb", "s"}}, 2), "a   long\nbb  s\n");
}

TEST(PrintRows, LongCell_PushesOutItsOwnRowAlone) {
  const std::string wide(65, 'x');
  EXPECT_EQ(rows_text({{wide, "1"}, {"\u00e4", "2"}}, 1), wide + "  1\n\u00e4  2\n");
}

TEST(PrintRows, NoRows_IsNothing) { EXPECT_EQ(rows_text({}, 0), ""); }

TEST(CountText, OneAndMany) {
  EXPECT_EQ(count_text(1, "tensor"), "1 tensor");
  EXPECT_EQ(count_text(0, "tensor"), "0 tensors");
}

TEST(ExactSizeText, HasBothForms) {
  EXPECT_EQ(exact_size_text(1), "1 B (1 byte)");
  EXPECT_EQ(exact_size_text(1536), "1.5 KiB (1536 bytes)");
}

TEST(Shortened, IsCutBetweenCharacters_AndEscaped) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc...");
  EXPECT_EQ(shortened("a\u00e4\u00e4", 2), "a...");
  EXPECT_EQ(shortened("a\nb", 9), "a\\x0ab");
}

}  // namespace
}  // namespace hyper_parallel
