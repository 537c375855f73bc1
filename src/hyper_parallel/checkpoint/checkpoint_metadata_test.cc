#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

constexpr uint32_t kChecksum = 7;

void expect_refused(const std::string& text, const std::function<void()>& action) {
  expect_error(ErrorCode::kInvalidArgument, text, action);
}

// 'w' of (4, 2) F32 in two chunks of two rows, one in each of two files, `further` bytes behind where two_chunk_parts
// has them.
StoredTensor two_chunks(std::string name = "w", int64_t further = 0) {
  StoredTensor tensor(std::move(name), DType::kF32, {4, 2});
  tensor.add_chunk({{0, 0}, {2, 2}}, 0, 100 + further, "", std::vector{kChecksum});
  tensor.add_chunk({{2, 0}, {2, 2}}, 1, 84 + further, "w.second", std::vector{kChecksum + 1});
  return tensor;
}

CheckpointParts two_chunk_parts() {
  CheckpointParts parts;
  parts.save_id = "0123456789abcdef";
  parts.files = {{"a", 116}, {"b", 100}};
  parts.tensors = {two_chunks()};
  parts.values = {{"step", Value(int64_t{3})}};
  return parts;
}

void expect_parts_refused(const std::string& text, const std::function<void(CheckpointParts&)>& change) {
  CheckpointParts parts = two_chunk_parts();
  change(parts);
  expect_refused(text, [&] { CheckpointMetadata{parts}; });
}

// One row that is wrong, added to an empty tensor of (4, 2) F32.
void expect_chunk_refused(const std::string& text, const Box& box, int64_t file = 0, int64_t begin = 0,
                          std::string_view key = "", size_t checksums = 1) {
  StoredTensor tensor("w", DType::kF32, {4, 2});
  expect_refused(text, [&] { tensor.add_chunk(box, file, begin, key, std::vector<uint32_t>(checksums)); });
  EXPECT_EQ(tensor, StoredTensor("w", DType::kF32, {4, 2})) << "a refused chunk leaves no trace";
}

TEST(BlockCount, IsOfStartedMebibytes) {
  EXPECT_EQ(block_count(0), 0);
  EXPECT_EQ(block_count(1), 1);
  EXPECT_EQ(block_count(kBlockBytes), 1);
  EXPECT_EQ(block_count(kBlockBytes + 1), 2);
  EXPECT_EQ(block_count(std::numeric_limits<int64_t>::max()), int64_t{1} << 43);
}

TEST(StoredTensor, Chunk_IsWhatWasAdded) {
  const StoredTensor tensor = two_chunks();
  ASSERT_EQ(tensor.chunk_count(), 2);
  const StoredChunk first = tensor.chunk(0);
  EXPECT_EQ(first.box, (Box{{0, 0}, {2, 2}}));
  EXPECT_EQ(first.file, 0);
  EXPECT_EQ(first.range(), (Interval{100, 116}));
  EXPECT_EQ(first.bytes, 16);
  EXPECT_EQ(first.key, "w");
  EXPECT_EQ(first.checksums.size(), 1u);
  const StoredChunk second = tensor.chunk(1);
  EXPECT_EQ(second.box, tensor.chunk_box(1));
  EXPECT_EQ(second.key, "w.second");
  EXPECT_EQ(second.checksums[0], kChecksum + 1);
  EXPECT_EQ(tensor.bytes(), 32);
}

TEST(StoredTensor, KeyThatIsTheName_IsNoKeyOfItsOwn) {
  StoredTensor named("w", DType::kF32, {4});
  named.add_chunk({{0}, {4}}, 0, 0, "w", std::vector{kChecksum});
  StoredTensor plain("w", DType::kF32, {4});
  plain.add_chunk({{0}, {4}}, 0, 0, "", std::vector{kChecksum});
  EXPECT_EQ(named, plain);
}

TEST(StoredTensor, KeysBetweenChunksWithoutOne_StayWithTheirChunks) {
  StoredTensor tensor("w", DType::kU8, {5});
  const std::vector<std::string> keys{"", "one", "", "three", ""};
  for (int64_t i = 0; i < 5; ++i) {
    tensor.add_chunk({{i}, {1}}, 0, i, keys[static_cast<size_t>(i)], std::vector{kChecksum});
  }
  EXPECT_EQ(tensor.chunk(0).key, "w");
  EXPECT_EQ(tensor.chunk(1).key, "one");
  EXPECT_EQ(tensor.chunk(2).key, "w");
  EXPECT_EQ(tensor.chunk(3).key, "three");
  EXPECT_EQ(tensor.chunk(4).key, "w");
}

TEST(StoredTensor, ChunkOfSeveralBlocks_HasAsManyChecksums) {
  StoredTensor tensor("w", DType::kU8, {kBlockBytes + 1, 2});
  tensor.add_chunk({{0, 0}, {1, 2}}, 0, 0, "", std::vector<uint32_t>{1});
  tensor.add_chunk({{1, 0}, {kBlockBytes, 2}}, 0, 2, "", std::vector<uint32_t>{2, 3});
  EXPECT_EQ(tensor.chunk(1).checksums[1], 3u);
  EXPECT_EQ(tensor.chunk(1).checksums.size(), 2u);
}

TEST(StoredTensor, Scalar_HasOneChunkOfNoDims) {
  StoredTensor tensor("s", DType::kF64, {});
  tensor.add_chunk({{}, {}}, 0, 8, "", std::vector{kChecksum});
  EXPECT_EQ(tensor.chunk(0).bytes, 8);
  EXPECT_EQ(tensor.chunk(0).box, Box());
}

TEST(StoredTensor, ShapeWithoutASize_IsRefused) {
  expect_refused("tensor 'w' has shape (2, -1), but a dim must not be negative",
                 [] { StoredTensor("w", DType::kF32, {2, -1}); });
  expect_refused("whose number of elements does not fit in int64",
                 [] { StoredTensor("w", DType::kF32, {int64_t{1} << 62, 4}); });
  expect_refused("but a tensor must fill whole bytes", [] { StoredTensor("w", DType::kF4, {3}); });
}

TEST(StoredTensor, BoxThatIsNotInTheShape_IsRefused) {
  expect_chunk_refused("tensor 'w' chunk (0,)+(4,) has another rank than the shape (4, 2)", {{0}, {4}});
  expect_chunk_refused("has another rank than the shape (4, 2)", {{0}, {4, 2}});
  expect_chunk_refused("tensor 'w' chunk (0, 0)+(4, 0) has no cells, but a chunk must have some", {{0, 0}, {4, 0}});
  expect_chunk_refused("has no cells", {{0, 0}, {-1, 2}});
  expect_chunk_refused("tensor 'w' chunk (3, 0)+(2, 2) leaves the shape (4, 2)", {{3, 0}, {2, 2}});
  expect_chunk_refused("leaves the shape (4, 2)", {{-1, 0}, {2, 2}});
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  expect_chunk_refused("leaves the shape (4, 2)", {{kMax, 0}, {kMax, 2}});
}

TEST(StoredTensor, SubByteBoxThatFillsNoWholeBytes_IsRefused) {
  StoredTensor tensor("w", DType::kF4, {3, 2});
  EXPECT_EQ(tensor.box_bytes({{0, 0}, {3, 2}}), 3);
  EXPECT_EQ(tensor.box_bytes({{1, 0}, {1, 2}}), 1);
  expect_refused("tensor 'w' chunk has shape (3, 1) of F4, which takes 12 bits, but a tensor must fill whole bytes",
                 [&] { tensor.add_chunk({{0, 0}, {3, 1}}, 0, 0, "", std::vector<uint32_t>(2)); });
}

TEST(StoredTensor, NegativePlace_IsRefused) {
  const Box box{{0, 0}, {4, 2}};
  expect_chunk_refused("tensor 'w' chunk (0, 0)+(4, 2) lies in file -1 at byte 0, but these must not be negative", box,
                       -1, 0);
  expect_chunk_refused("lies in file 0 at byte -8, but these must not be negative", box, 0, -8);
}

TEST(StoredTensor, WrongNumberOfChecksums_IsRefused) {
  const Box box{{0, 0}, {4, 2}};
  expect_chunk_refused("tensor 'w' chunk (0, 0)+(4, 2) has 0 checksums, but its 32 bytes are 1 blocks", box, 0, 0, "",
                       0);
  expect_chunk_refused("has 2 checksums, but its 32 bytes are 1 blocks", box, 0, 0, "", 2);
}

TEST(StoredTensor, KeyThatIsNotUtf8_IsRefused) {
  expect_chunk_refused("tensor 'w' chunk (0, 0)+(4, 2) has the key 'w\\xff', which is not UTF-8", {{0, 0}, {4, 2}}, 0,
                       0, "w\xff");
}

TEST(CheckpointMetadata, OfNothing_IsValidAndTheDefault) {
  CheckpointParts parts;
  parts.save_id = "0000000000000000";
  EXPECT_EQ(CheckpointMetadata(parts), CheckpointMetadata());
}

TEST(CheckpointMetadata, Parts_AreFoundByName) {
  const CheckpointMetadata metadata(two_chunk_parts());
  ASSERT_NE(metadata.find_tensor("w"), nullptr);
  EXPECT_EQ(*metadata.find_tensor("w"), two_chunks());
  ASSERT_NE(metadata.find_value("step"), nullptr);
  EXPECT_EQ(*metadata.find_value("step"), Value(int64_t{3}));
  EXPECT_EQ(metadata.find_tensor("step"), nullptr);
  EXPECT_EQ(metadata.find_value("w"), nullptr);
  EXPECT_EQ(metadata.find_value(""), nullptr);
}

TEST(CheckpointMetadata, PartsInAnyOrder_AreSorted_AndChunksFollowTheirFiles) {
  CheckpointParts parts = two_chunk_parts();
  parts.files = {{"z", 132}, {"b", 116}};
  parts.tensors.push_back(two_chunks("v", 16));
  parts.values.push_back({"a", Value()});
  const CheckpointMetadata metadata(parts);
  EXPECT_EQ(metadata.files()[0].name, "b");
  EXPECT_EQ(metadata.files()[1].name, "z");
  EXPECT_EQ(metadata.tensors()[0].name(), "v");
  EXPECT_EQ(metadata.values()[0].name, "a");
  EXPECT_EQ(metadata.tensors()[1].chunk(0).file, 1);
  EXPECT_EQ(metadata.tensors()[1].chunk(1).file, 0);
}

TEST(CheckpointMetadata, SaveIdThatIsNot16LowerCaseHexDigits_IsRefused) {
  for (const char* id : {"", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "0123456789abcdeg"}) {
    expect_parts_refused("but it must be 16 lower-case hex digits", [&](auto& parts) { parts.save_id = id; });
  }
}

TEST(CheckpointMetadata, FileNameThatIsNotOneVisibleComponent_IsRefused) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string(".metadata"), std::string("/etc/passwd"),
        std::string("sub/a"), std::string("../a"), std::string("a\0", 2), std::string("a\n"), std::string("a\xff"),
        std::string(256, 'a')}) {
    expect_parts_refused("has a name that is not one visible path component",
                         [&](auto& parts) { parts.files[0].name = name; });
  }
  EXPECT_TRUE(is_file_name("a..b"));
  EXPECT_TRUE(is_file_name(std::string(255, 'a')));
  EXPECT_TRUE(is_file_name("\xc3\xa9 a"));
}

TEST(CheckpointMetadata, NameTwice_IsRefused) {
  expect_parts_refused("file 'a' occurs twice, but a name must be unique",
                       [](auto& parts) { parts.files = {{"a", 116}, {"a", 116}}; });
  expect_parts_refused("tensor 'w' occurs twice, but a name must be unique",
                       [](auto& parts) { parts.tensors.push_back(two_chunks()); });
  expect_parts_refused("value 'step' occurs twice, but a name must be unique",
                       [](auto& parts) { parts.values.push_back({"step", Value()}); });
  expect_parts_refused("the name 'w' is both a tensor's and a value's",
                       [](auto& parts) { parts.values.push_back({"w", Value()}); });
}

TEST(CheckpointMetadata, NameThatIsNotUtf8_IsRefused) {
  expect_parts_refused("tensor '\\xff' has a name that is not UTF-8",
                       [](auto& parts) { parts.tensors.push_back(StoredTensor("\xff", DType::kF32, {0})); });
  expect_parts_refused("value '\\xff' has a name that is not UTF-8",
                       [](auto& parts) { parts.values.push_back({"\xff", Value()}); });
}

TEST(CheckpointMetadata, ChunkInNoFile_IsRefused) {
  const std::string text = "tensor 'w' chunk 1 lies in file number 1, but there are 1 files";
  expect_parts_refused(text, [](auto& parts) { parts.files.pop_back(); });
  expect_parts_refused("tensor 'w' chunk 0 lies in file number 0, but there are 0 files",
                       [](auto& parts) { parts.files.clear(); });
  StoredTensor far("w", DType::kU8, {1});
  far.add_chunk({{0}, {1}}, 9, 0, "", std::vector{kChecksum});
  expect_parts_refused("tensor 'w' chunk 0 lies in file number 9, but there are 2 files", [&](auto& parts) {
    std::swap(parts.files[0], parts.files[1]);
    parts.tensors = {far};
  });
}

TEST(CheckpointMetadata, ChunkPastTheEndOfItsFile_IsRefused) {
  expect_parts_refused("tensor 'w' chunk 0 takes 16 bytes from byte 100, but file 'a' has 115",
                       [](auto& parts) { parts.files[0].bytes = 115; });
  expect_parts_refused("tensor 'w' chunk 1 takes 16 bytes from byte 84, but file 'b' has 4",
                       [](auto& parts) { parts.files[1].bytes = 4; });
  expect_parts_refused("file 'b' has -1 bytes, but a size must not be negative",
                       [](auto& parts) { parts.files[1].bytes = -1; });
  StoredTensor far("w", DType::kU8, {1});
  far.add_chunk({{0}, {1}}, 0, std::numeric_limits<int64_t>::max(), "", std::vector{kChecksum});
  expect_parts_refused("takes 1 bytes from byte 9223372036854775807, but file 'a' has 116",
                       [&](auto& parts) { parts.tensors = {far}; });
}

// One byte of file 0 or 1 for each of a U8 tensor's cells.
StoredTensor bytes_at(std::string name, const std::vector<std::pair<int64_t, int64_t>>& places) {
  StoredTensor tensor(std::move(name), DType::kU8, {static_cast<int64_t>(places.size())});
  for (int64_t i = 0; i < tensor.shape()[0]; ++i) {
    const auto& [file, begin] = places[static_cast<size_t>(i)];
    tensor.add_chunk({{i}, {1}}, file, begin, "", std::vector{kChecksum});
  }
  return tensor;
}

TEST(CheckpointMetadata, ChunksThatShareBytes_AreRefused) {
  expect_parts_refused(
      "file 'a' holds tensor 'v' at bytes 100 to 116 and tensor 'w' at bytes 100 to 116, but no two chunks may share a "
      "byte",
      [](auto& parts) { parts.tensors.push_back(two_chunks("v")); });
  expect_parts_refused(
      "file 'b' holds tensor 'w' at bytes 84 to 100 and tensor 'x' at bytes 99 to 100, but no two chunks may share",
      [](auto& parts) { parts.tensors.push_back(bytes_at("x", {{0, 99}, {1, 99}})); });
  expect_parts_refused("file 'a' holds tensor 'x' at bytes 7 to 8 and tensor 'x' at bytes 7 to 8,",
                       [](auto& parts) { parts.tensors = {bytes_at("x", {{0, 8}, {0, 7}, {0, 9}, {0, 7}})}; });
}

TEST(CheckpointMetadata, ChunksInAnyOrderInTheirFiles_AreTaken) {
  CheckpointParts parts = two_chunk_parts();
  parts.tensors.push_back(bytes_at("x", {{1, 83}, {0, 99}, {1, 0}, {0, 0}}));
  parts.tensors.push_back(bytes_at("y", {{0, 1}, {1, 82}}));
  EXPECT_NO_THROW(CheckpointMetadata{parts});
}

TEST(CheckpointMetadata, ChunksThatDoNotTile_AreRefused) {
  expect_parts_refused(
      "tensor 'w' of shape (4, 2) is not stored right: chunks (2, 0)+(2, 2) and (2, 0)+(1, 2) overlap",
      [](auto& parts) { parts.tensors[0].add_chunk({{2, 0}, {1, 2}}, 0, 0, "", std::vector{kChecksum}); });
  expect_parts_refused("tensor 'v' of shape (3,) is not stored right: no chunk holds cell (0,)",
                       [](auto& parts) { parts.tensors.push_back(StoredTensor("v", DType::kF32, {3})); });
  CheckpointParts empty = two_chunk_parts();
  empty.tensors.push_back(StoredTensor("v", DType::kF32, {3, 0}));
  EXPECT_NO_THROW(CheckpointMetadata{empty});
}

TEST(CheckpointMetadata, ValueThatCannotBeStored_IsRefusedByName) {
  expect_parts_refused("value 'step' has the text '\\xff', which is not UTF-8",
                       [](auto& parts) { parts.values[0].value = "\xff"; });
  expect_parts_refused("the structure has the text '\\xff', which is not UTF-8",
                       [](auto& parts) { parts.structure = "\xff"; });
}

TEST(CheckpointMetadata, Structure_HasEachEntryOnce) {
  const auto dict = [](Value model, Value step) {
    return ValueDict{{{Value("model"), ValueList{{std::move(model)}}}, {Value("step"), std::move(step)}}};
  };
  CheckpointParts parts = two_chunk_parts();
  parts.structure = dict("w", "step");
  EXPECT_EQ(CheckpointMetadata(parts).structure(), parts.structure);

  const auto expect_structure_refused = [](const std::string& text, Value structure) {
    expect_parts_refused(text, [&](auto& changed) { changed.structure = structure; });
  };
  expect_structure_refused("the structure has the leaf 'v', but there is no entry of that name", dict("v", "step"));
  expect_structure_refused("the structure has the leaf 'w' twice", dict("w", "w"));
  expect_structure_refused("the structure has the leaf 3, but a leaf must be the name of an entry",
                           dict("w", int64_t{3}));
  expect_structure_refused("the structure lacks the value 'step'", ValueDict{{{Value("model"), Value("w")}}});
  expect_structure_refused("the structure lacks the tensor 'w'", ValueTuple{{Value("step")}});
}

}  // namespace
}  // namespace hyper_parallel
