// Checkpoints that were written once, one of each kind, and stay loadable for ever. Nothing writes them again: a change
// of the format brings another directory beside these.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "tests/support/cells.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/value_samples.h"

namespace hyper_parallel {
namespace {

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(HYPER_PARALLEL_GOLDEN) / "checkpoint" / name;
}

CheckpointMetadata read_golden(const std::string& name) {
  const std::string text = read_file(golden(name) / kMetadataFile);
  return parse_metadata(bytes_of(text), name);
}

struct Row {
  Box box;
  int64_t file = 0;
  int64_t begin = 0;
  std::string key;
  uint32_t checksum = 0;
};

StoredTensor stored(std::string name, DType dtype, Dims shape, const std::vector<Row>& rows) {
  StoredTensor tensor(std::move(name), dtype, std::move(shape));
  for (const Row& row : rows) tensor.add_chunk(row.box, row.file, row.begin, row.key, std::vector{row.checksum});
  return tensor;
}

// Byte i of a tensor is 17 i + the sum of its name's letters, and i mod 2 where it is a bool.
char golden_byte(const StoredTensor& tensor, int64_t i) {
  if (tensor.dtype() == DType::kBool) return static_cast<char>(i % 2);
  int64_t sum = 17 * i;
  for (const char letter : tensor.name()) sum += letter;
  return static_cast<char>(sum & 0xFF);
}

std::string golden_bytes(const StoredTensor& tensor, const Box& box) {
  const int64_t width = bits_per_element(tensor.dtype()) / 8;
  std::string bytes;
  for (const int64_t cell : cells_of(box, tensor.shape())) {
    for (int64_t i = 0; i < width; ++i) bytes += golden_byte(tensor, cell * width + i);
  }
  return bytes;
}

void expect_chunk_in_file(const StoredTensor& tensor, const StoredChunk& chunk, const SafetensorsFile& file) {
  const TensorEntry& entry = file.header().at(chunk.key);
  EXPECT_EQ(entry.dtype, tensor.dtype());
  EXPECT_EQ(entry.shape, chunk.box.sizes.to_vector());
  EXPECT_EQ(file.data_begin() + entry.begin, chunk.begin);
  EXPECT_EQ(entry.size_bytes(), chunk.bytes);
  EXPECT_EQ(text_of(file.bytes(entry)), golden_bytes(tensor, chunk.box));
  EXPECT_EQ(block_checksums(file.bytes(entry)), std::vector<uint32_t>(chunk.checksums.begin(), chunk.checksums.end()));
}

// Every chunk's bytes, checksum and place in its data file; and no file holds anything else.
void expect_data(const std::string& name, const CheckpointMetadata& metadata) {
  std::vector<SafetensorsFile> files;
  for (const StoredFile& file : metadata.files()) {
    files.emplace_back(golden(name) / file.name);
    EXPECT_EQ(files.back().size(), file.bytes) << file.name;
  }
  std::vector<size_t> chunks_of(files.size());
  for (const StoredTensor& tensor : metadata.tensors()) {
    SCOPED_TRACE(tensor.name());
    for (int64_t i = 0; i < tensor.chunk_count(); ++i) {
      const StoredChunk chunk = tensor.chunk(i);
      expect_chunk_in_file(tensor, chunk, files[static_cast<size_t>(chunk.file)]);
      ++chunks_of[static_cast<size_t>(chunk.file)];
    }
  }
  for (size_t i = 0; i < files.size(); ++i) EXPECT_EQ(files[i].header().tensors().size(), chunks_of[i]);
}

Value text_dict(const std::vector<std::pair<const char*, Value>>& items) {
  ValueDict dict;
  for (const auto& [key, value] : items) dict.items.emplace_back(Value(key), value);
  return dict;
}

CheckpointParts version_1() {
  CheckpointParts parts;
  parts.save_id = "00000000000000a1";
  parts.files = {{"data-00000000000000a1-00000.safetensors", 337}, {"data-00000000000000a1-00001.safetensors", 498}};
  parts.tensors = {stored("model.b", DType::kBF16, {3}, {{{{0}, {3}}, 1, 492, "", 1632565098}}),
                   stored("model.empty", DType::kF32, {0, 3}, {}),
                   stored("model.flags", DType::kBool, {5}, {{{{0}, {5}}, 0, 332, "", 2341815546}}),
                   stored("model.ids", DType::kI64, {2, 3}, {{{{0, 0}, {2, 3}}, 1, 360, "", 1650835479}}),
                   stored("model.scale", DType::kF64, {}, {{{{}, {}}, 0, 296, "", 389903680}}),
                   stored("model.w", DType::kF32, {4, 6},
                          {{{{0, 0}, {1, 6}}, 0, 304, "model.w.__dcp_chunk_0", 1272866976},
                           {{{1, 0}, {1, 1}}, 0, 328, "model.w.__dcp_chunk_1", 3848449719},
                           {{{1, 1}, {1, 5}}, 1, 424, "model.w.__dcp_chunk_0", 2754631380},
                           {{{2, 0}, {2, 6}}, 1, 444, "model.w.__dcp_chunk_1", 4113417143}}),
                   stored("model.z", DType::kC64, {2}, {{{{0}, {2}}, 1, 408, "", 4059815514}})};
  ValueList names;
  for (const Value& value : value_samples()) {
    const std::string number = std::to_string(parts.values.size());
    parts.values.push_back({"values." + std::string(2 - number.size(), '0') + number, value});
    names.items.emplace_back(parts.values.back().name);
  }
  const Value model = text_dict({{"w", "model.w"},
                                 {"b", "model.b"},
                                 {"scale", "model.scale"},
                                 {"flags", "model.flags"},
                                 {"ids", "model.ids"},
                                 {"z", "model.z"},
                                 {"empty", "model.empty"}});
  parts.structure = text_dict({{"model", model}, {"values", names}});
  return parts;
}

TEST(GoldenCheckpoint, Version1_HasEveryField) {
  EXPECT_EQ(read_golden("v1"), CheckpointMetadata(version_1()));
  expect_data("v1", read_golden("v1"));
}

TEST(GoldenCheckpoint, Version1_IsWrittenByteForByteAsItWas) {
  EXPECT_EQ(write_metadata(read_golden("v1")), read_file(golden("v1") / kMetadataFile));
}

TEST(GoldenCheckpoint, Version1WithoutTensorKeysAndChecksumOfTheText_FallsBackToTheNames) {
  CheckpointParts parts;
  parts.save_id = "00000000000000a2";
  parts.files = {{"data-00000000000000a2-00000.safetensors", 68}, {"data-00000000000000a2-00001.safetensors", 136}};
  parts.tensors = {
      stored("u", DType::kU8, {2, 2}, {{{{0, 0}, {2, 2}}, 1, 132, "", 3079177437}}),
      stored("w", DType::kI32, {4}, {{{{0}, {1}}, 0, 64, "", 4109340147}, {{{1}, {3}}, 1, 120, "", 1871717387}})};
  parts.values = {{"step", Value(int64_t{3})}};
  const CheckpointMetadata metadata = read_golden("v1_without_tensor_keys");
  EXPECT_EQ(metadata, CheckpointMetadata(parts));
  EXPECT_EQ(metadata.find_tensor("w")->chunk(1).key, "w");
  EXPECT_EQ(read_file(golden("v1_without_tensor_keys") / kMetadataFile).find("tensor_keys"), std::string::npos);
  expect_data("v1_without_tensor_keys", metadata);
}

}  // namespace
}  // namespace hyper_parallel
