#include "hyper_parallel/checkpoint/byte_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/expect_error.h"
#include "tests/support/value_samples.h"

namespace hyper_parallel {
namespace {

std::string one_of_each() {
  ByteWriter out;
  out.write_byte(200);
  out.write_uint32(0xDEADBEEF);
  out.write_int64(std::numeric_limits<int64_t>::min());
  out.write_double(-0.0);
  out.write_string(std::string("a\0b", 3));
  out.write_dims({5, -1, 3});
  return out.take();
}

void read_one_of_each(std::string_view bytes) {
  ByteReader in(bytes);
  EXPECT_EQ(in.read_byte(), 200);
  EXPECT_EQ(in.read_uint32(), 0xDEADBEEF);
  EXPECT_EQ(in.read_int64(), std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(std::signbit(in.read_double()));
  EXPECT_EQ(in.read_string(), std::string("a\0b", 3));
  EXPECT_EQ(in.read_dims(), (Dims{5, -1, 3}));
  in.finish();
}

std::string bytes_of_value(const Value& value) {
  ByteWriter out;
  write_value(out, value);
  return out.take();
}

TEST(ByteCodec, EachKind_ComesBack) { read_one_of_each(one_of_each()); }

TEST(ByteCodec, Integers_AreLittleEndian) {
  ByteWriter out;
  out.write_uint32(0x01020304);
  out.write_int64(-2);
  EXPECT_EQ(out.bytes(), std::string("\x04\x03\x02\x01\xfe\xff\xff\xff\xff\xff\xff\xff", 12));
  EXPECT_EQ(out.take().size(), 12u);
  EXPECT_EQ(out.bytes(), "");
}

TEST(ByteCodec, MessageThatEndsAtAnyByte_IsRefused) {
  const std::string bytes = one_of_each();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    expect_error(ErrorCode::kInternal, "a message ends early: ", [&] { read_one_of_each(cut); });
  }
}

TEST(ByteCodec, BytesBehindTheEnd_AreRefused) {
  expect_error(ErrorCode::kInternal, "a message has 1 bytes behind its end", [] { ByteReader("x").finish(); });
}

TEST(ByteCodec, CountThatTheRestCannotHold_IsRefusedBeforeAnythingIsAllocated) {
  ByteWriter out;
  out.write_count(std::numeric_limits<size_t>::max());
  out.write_int64(1);
  const std::string bytes = out.take();
  const std::string text = "18446744073709551615 items are announced, 8 bytes are left";
  expect_error(ErrorCode::kInternal, text, [&] { ByteReader(bytes).read_string(); });
  expect_error(ErrorCode::kInternal, text, [&] { ByteReader(bytes).read_dims(); });
  expect_error(ErrorCode::kInternal, text, [&] { ByteReader(bytes).read_count(8); });
}

TEST(ByteCodecValue, EverySample_ComesBack) {
  for (const Value& value : value_samples()) {
    const std::string bytes = bytes_of_value(value);
    ByteReader in(bytes);
    EXPECT_EQ(read_value(in), value) << to_string(value);
    EXPECT_NO_THROW(in.finish());
  }
}

TEST(ByteCodecValue, ThatEndsAtAnyByte_IsRefused) {
  const std::string bytes = bytes_of_value(value_samples().back());
  for (size_t size = 0; size < bytes.size(); ++size) {
    expect_error(ErrorCode::kInternal, "a message ends early: ", [cut = bytes.substr(0, size)] {
      ByteReader in(cut);
      read_value(in);
    });
  }
}

TEST(ByteCodecValue, OfAnUnknownKind_IsRefused) {
  expect_error(ErrorCode::kInternal, "a message holds a value of the unknown kind 11", [] {
    ByteReader in("\x0b");
    read_value(in);
  });
}

TEST(ByteCodecValue, NestedDeeperThan64_IsNeitherWrittenNorRead) {
  const std::string fits = bytes_of_value(nested_lists(kMaxValueDepth));
  expect_error(ErrorCode::kInvalidArgument, "a value is nested deeper than 64 levels",
               [] { bytes_of_value(nested_lists(kMaxValueDepth + 1)); });
  // A list of one item starts with its kind and the count; each such head in front is one level more.
  const std::string deeper = fits.substr(0, 9) + fits;
  expect_error(ErrorCode::kInternal, "a message holds a value nested deeper than 64 levels", [&] {
    ByteReader in(deeper);
    read_value(in);
  });
}

}  // namespace
}  // namespace hyper_parallel
