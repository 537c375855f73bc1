#include "hyper_parallel/tools/byte_count.h"

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

TEST(ByteCount, UnitsOf1000And1024_AreTold) {
  EXPECT_EQ(parse_byte_count("4096"), 4096);
  EXPECT_EQ(parse_byte_count("512 B"), 512);
  EXPECT_EQ(parse_byte_count("2KB"), 2000);
  EXPECT_EQ(parse_byte_count("2KiB"), 2048);
  EXPECT_EQ(parse_byte_count("256MiB"), int64_t{256} << 20);
  EXPECT_EQ(parse_byte_count("3mb"), 3'000'000);
  EXPECT_EQ(parse_byte_count("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_byte_count("1.5 gib"), int64_t{3} << 29);
  EXPECT_EQ(parse_byte_count("1TB"), 1'000'000'000'000);
  EXPECT_EQ(parse_byte_count("1TiB"), int64_t{1} << 40);
}

TEST(ByteCount, OtherText_IsRefused) {
  for (const char* text : {"", "MiB", "5 apples", "5 GB ", "1e9", "0x10", "nan", "inf", "1,5GB"}) {
    expect_error(ErrorCode::kInvalidArgument, " is not a byte count; write one as 256MiB, 5GB or 4096",
                 [&] { parse_byte_count(text); });
  }
}

TEST(ByteCount, OutOfRange_IsRefused) {
  for (const char* text : {"0", "-1", "0.5", "10000000000TB"}) {
    expect_error(ErrorCode::kInvalidArgument, " is out of range; a byte count is at least 1 and fits in int64",
                 [&] { parse_byte_count(text); });
  }
}

}  // namespace
}  // namespace hyper_parallel
