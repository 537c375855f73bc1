#include "hyper_parallel/checkpoint/data_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;
using Names = std::vector<std::string>;

std::string pattern(size_t count, unsigned seed) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>((i * 31 + i / 257 + size_t{seed} * 101) & 0xFF);
  return bytes;
}

// Writes all contents, cut into pieces of `piece` bytes.
WrittenFile write_in_pieces(DataFile& file, const std::vector<std::string>& contents, size_t piece) {
  std::string all;
  for (const size_t chunk : file.order()) all += contents[chunk];
  for (size_t at = 0; at < all.size(); at += piece) file.append(bytes_of(std::string_view(all).substr(at, piece)));
  return file.finish();
}

TEST(TensorKeys, OneChunkOfAName_KeepsThePlainName) {
  EXPECT_THAT(assign_tensor_keys(Names{"b", "a", ""}), ElementsAre("b", "a", ""));
  EXPECT_THAT(assign_tensor_keys(Names{}), ElementsAre());
}

TEST(TensorKeys, SeveralChunksOfAName_AreNumberedInTheirOrder) {
  EXPECT_THAT(assign_tensor_keys(Names{"w", "a", "w", "w"}),
              ElementsAre("w.__dcp_chunk_0", "a", "w.__dcp_chunk_1", "w.__dcp_chunk_2"));
}

TEST(TensorKeys, NumbersThatAreOtherTensorsNames_AreLeftOut) {
  EXPECT_THAT(assign_tensor_keys(Names{"w", "w", "w.__dcp_chunk_0", "w.__dcp_chunk_2"}),
              ElementsAre("w.__dcp_chunk_1", "w.__dcp_chunk_3", "w.__dcp_chunk_0", "w.__dcp_chunk_2"));
}

TEST(TensorKeys, NumberedNameWithSeveralChunks_GetsNumbersOfItsOwn) {
  EXPECT_THAT(assign_tensor_keys(Names{"w", "w.__dcp_chunk_0", "w", "w.__dcp_chunk_0"}),
              ElementsAre("w.__dcp_chunk_1", "w.__dcp_chunk_0.__dcp_chunk_0", "w.__dcp_chunk_2",
                          "w.__dcp_chunk_0.__dcp_chunk_1"));
}

TEST(TensorKeys, NameThatTheFormatKeeps_IsNumbered) {
  EXPECT_THAT(assign_tensor_keys(Names{"__metadata__"}), ElementsAre("__metadata__.__dcp_chunk_0"));
}

TEST(DataFile, Chunks_StandWhereTheResultSays) {
  const TemporaryFolder folder;
  const std::vector<std::string> contents{pattern(24, 1), pattern(3, 2), pattern(8, 3), pattern(8, 4)};
  DataFile file(
      folder / "f",
      std::vector<DataChunk>{
          {"w", DType::kF32, {2, 3}}, {"b", DType::kU8, {3}}, {"w", DType::kF32, {1, 2}}, {"scalar", DType::kF64, {}}});
  EXPECT_THAT(file.order(), ElementsAre(3, 0, 2, 1));
  const WrittenFile written = write_in_pieces(file, contents, 5);

  const std::string text = read_file(folder / "f");
  ASSERT_EQ(written.bytes, static_cast<int64_t>(text.size()));
  const SafetensorsFile stored(folder / "f");
  ASSERT_EQ(written.chunks.size(), 4U);
  for (size_t i = 0; i < contents.size(); ++i) {
    const WrittenChunk& chunk = written.chunks[i];
    EXPECT_EQ(text.substr(static_cast<size_t>(chunk.begin), contents[i].size()), contents[i]);
    EXPECT_EQ(text_of(stored.bytes(chunk.key)), contents[i]);
    EXPECT_THAT(chunk.checksums, ElementsAre(crc32c(bytes_of(contents[i]))));
  }
  EXPECT_EQ(written.chunks[2].key, "w.__dcp_chunk_1");
  EXPECT_EQ(written.chunks[3].key, "scalar");
}

TEST(DataFile, Checksums_AreOfEachBlockOfAChunkWhateverThePieces) {
  const auto block = static_cast<size_t>(kBlockBytes);
  const std::vector<std::string> contents{pattern(2 * block + 5, 1), pattern(block, 2), pattern(block - 1, 3)};
  const std::vector<DataChunk> chunks{
      {"a", DType::kU8, {2 * kBlockBytes + 5}}, {"b", DType::kU8, {kBlockBytes}}, {"c", DType::kU8, {kBlockBytes - 1}}};
  const TemporaryFolder folder;
  for (const size_t piece : {size_t{4097}, block, 3 * block + 1, size_t{1} << 30}) {
    DataFile file(folder / std::to_string(piece), chunks);
    const WrittenFile written = write_in_pieces(file, contents, piece);
    for (size_t i = 0; i < contents.size(); ++i) {
      EXPECT_EQ(written.chunks[i].checksums, block_checksums(bytes_of(contents[i]))) << piece << " " << i;
    }
  }
}

TEST(DataFile, NoChunkAndChunksWithoutCells_AreAValidFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(DataFile(folder / "none", {}).finish().bytes, 8 + 8);
  DataFile file(folder / "empty", std::vector<DataChunk>{{"e", DType::kF32, {0, 3}}, {"x", DType::kU8, {2}}});
  file.append(bytes_of("ab"));
  const WrittenFile written = file.finish();
  EXPECT_THAT(written.chunks[0].checksums, ElementsAre());
  EXPECT_EQ(text_of(SafetensorsFile(folder / "empty").bytes("x")), "ab");
}

TEST(DataFile, NoFinish_RemovesTheFile) {
  const TemporaryFolder folder;
  {
    DataFile file(folder / "f", std::vector<DataChunk>{{"x", DType::kU8, {2}}});
    file.append(bytes_of("a"));
    EXPECT_TRUE(std::filesystem::exists(folder / "f"));
    expect_error(ErrorCode::kInvalidArgument, "bytes, header included", [&] { file.finish(); });
  }
  EXPECT_EQ(folder.names(), std::set<std::string>{});
}

TEST(DataFile, NameThatIsTaken_IsRefusedAndKeptEvenAsASymbolicLink) {
  const TemporaryFolder folder;
  write_file(folder / "f", "precious");
  expect_error(ErrorCode::kFailedPrecondition, "cannot create '" + (folder / "f").string() + "': File exists",
               [&] { DataFile file(folder / "f", {}); });
  EXPECT_EQ(read_file(folder / "f"), "precious");
  std::filesystem::create_symlink("elsewhere", folder / "link");
  expect_error(ErrorCode::kFailedPrecondition, "File exists", [&] { DataFile file(folder / "link", {}); });
  EXPECT_FALSE(std::filesystem::exists(folder / "elsewhere"));
}

TEST(DataFile, MoreBytesThanTheChunksHave_AreRefused) {
  const TemporaryFolder folder;
  DataFile file(folder / "f", std::vector<DataChunk>{{"x", DType::kU8, {2}}});
  expect_error(ErrorCode::kInvalidArgument, "has room for 2 more bytes, but gets 3",
               [&] { file.append(bytes_of("abc")); });
  file.append(bytes_of("ab"));
  file.finish();
  expect_error(ErrorCode::kFailedPrecondition, "it is finished", [&] { file.append(bytes_of("c")); });
  expect_error(ErrorCode::kFailedPrecondition, "it is finished", [&] { file.finish(); });
}

TEST(DataFile, NameThatTheFormatRefuses_CreatesNothing) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::kInvalidArgument, "not UTF-8",
               [&] { DataFile file(folder / "f", std::vector<DataChunk>{{"\xff", DType::kU8, {2}}}); });
  EXPECT_EQ(folder.names(), std::set<std::string>{});
}

TEST(DataFile, DiskThatTakesNoMore_IsDataLossAndLeavesNothing) {
  const TemporaryFolder folder;
  const std::vector<DataChunk> chunks{{"x", DType::kU8, {1000}}};
  {
    DataFile file(folder / "f", chunks);
    const FileSizeLimit limit(500);  // the system takes a part first
    expect_error(ErrorCode::kDataLoss, "cannot write '" + (folder / "f").string() + "': File too large",
                 [&] { file.append(bytes_of(pattern(1000, 1))); });
  }
  EXPECT_EQ(folder.names(), std::set<std::string>{});
  const FileSizeLimit limit(5);
  expect_error(ErrorCode::kDataLoss, "File too large", [&] { DataFile file(folder / "g", chunks); });
  EXPECT_EQ(folder.names(), std::set<std::string>{});
}

}  // namespace
}  // namespace hyper_parallel
