#include "hyper_parallel/checkpoint/parts_codec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/byte_codec.h"
#include "tests/support/expect_error.h"
#include "tests/support/value_samples.h"

namespace hyper_parallel {
namespace {

CheckpointParts sample() {
  CheckpointParts parts;
  parts.save_id = "0123456789abcdef";
  parts.files = {{"b", 1 << 20}, {"a", 0}};
  StoredTensor tensor("w", DType::kBF16, {1 << 20, 2});
  tensor.add_chunk({{0, 0}, {1 << 19, 2}}, 0, 16, "w.part", std::vector<uint32_t>{1, 2});
  tensor.add_chunk({{1 << 19, 1}, {3, 1}}, 1, 0, "", std::vector<uint32_t>{0xFFFFFFFF});
  StoredTensor scalar("s", DType::kU64, {});
  scalar.add_chunk({{}, {}}, 0, 0, "", std::vector<uint32_t>{5});
  parts.tensors = {tensor, StoredTensor("empty", DType::kF32, {0, 3}), scalar};
  for (const Value& value : value_samples()) parts.values.push_back({std::to_string(parts.values.size()), value});
  parts.structure = ValueDict{{{Value("w"), Value("w")}}};
  return parts;
}

TEST(PartsCodec, Parts_ComeBack_WhetherOrNotTheyAreWholeCheckpoints) {
  EXPECT_EQ(decode_parts(encode_parts(sample())), sample());
  EXPECT_EQ(decode_parts(encode_parts({})), CheckpointParts());
}

TEST(PartsCodec, BytesThatEndAnywhere_AreRefused) {
  const std::string bytes = encode_parts(sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    expect_error(ErrorCode::kInternal, "a message ends early: ", [&] { decode_parts(bytes.substr(0, size)); });
  }
  expect_error(ErrorCode::kInternal, "a message has 1 bytes behind its end", [&] { decode_parts(bytes + "x"); });
}

TEST(PartsCodec, BytesOfWrongParts_AreRefused) {
  CheckpointParts parts;
  parts.tensors = {StoredTensor("w", DType::kU64, {7})};
  const std::string bytes = encode_parts(parts);
  // The name's one letter stands before the dtype, and the dtype before the count of dims and the dim.
  const size_t dtype = bytes.find('w') + 1;
  std::string unknown = bytes;
  unknown[dtype] = '\xff';
  expect_error(ErrorCode::kInternal, "a message holds the unknown dtype 255", [&] { decode_parts(unknown); });
  std::string negative = bytes;
  negative[dtype + 16] = '\x80';
  expect_error(ErrorCode::kInternal, "a message holds wrong parts: tensor 'w' has shape (-9223372036854775801,)",
               [&] { decode_parts(negative); });
}

}  // namespace
}  // namespace hyper_parallel
