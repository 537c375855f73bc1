#include "hyper_parallel/tools/inspect_checkpoint.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/expect_error.h"
#include "tests/support/stored_checkpoint.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::json;

TestCheckpoint small() {
  return {{counting_tensor("w", {4, 3}, {{0, {{0, 0}, {2, 3}}}, {1, {{2, 0}, {1, 3}}}, {1, {{3, 0}, {1, 3}}}}),
           {"e", DType::kI64, {0}, "", {}}},
          {{"lr", Value(0.5)}, {"note\n", Value(std::string("a\x1b"))}},
          {}};
}

std::string inspect(const std::filesystem::path& directory, InspectFormat format) {
  std::ostringstream out;
  inspect_checkpoint(directory, format, out);
  return out.str();
}

std::string picture(const std::filesystem::path& directory, const std::optional<std::string>& name) {
  std::ostringstream out;
  picture_checkpoint(directory, name, out);
  return out.str();
}

TEST(InspectCheckpointTable, ListsTensorsValuesTotalsAndFiles) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", small());
  const auto file_line = [&](size_t i, const std::string& chunks) {
    const StoredFile& file = metadata.files()[i];
    return str_cat("file ", file.name, ": ", file.bytes, " B (", file.bytes, " bytes), ", chunks, "\n");
  };
  EXPECT_EQ(inspect(folder / "c", InspectFormat::kTable),
            str_cat("name  dtype  shape   size  chunks  files\n"
                    "e     I64    (0,)     0 B       0      0\n"
                    "w     F32    (4, 3)  48 B       3      2\n"
                    "\n"
                    "value lr: 0.5\n",
                    R"(value note\x0a: ')", R"(a\x1b')", "\n",
                    "F32: 1 tensor, 12 elements, 3 chunks, 48 B (48 bytes)\n"
                    "I64: 1 tensor, 0 elements, 0 chunks, 0 B (0 bytes)\n"
                    "total: 2 tensors, 12 elements, 3 chunks, 48 B (48 bytes)\n",
                    file_line(0, "1 chunk"), file_line(1, "2 chunks"), "save 00000000000000aa\n"));
}

TEST(InspectCheckpointTable, NothingStored_HasZeroTotals) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", {});
  EXPECT_EQ(inspect(folder / "c", InspectFormat::kTable),
            "name  dtype  shape  size  chunks  files\n\ntotal: 0 tensors, 0 elements, 0 chunks, 0 B (0 bytes)\n"
            "save 00000000000000aa\n");
}

TEST(InspectCheckpointTable, DataFilesAreNotRead) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", small());
  const std::string before = inspect(folder / "c", InspectFormat::kTable);
  std::filesystem::remove(folder / "c" / metadata.files()[0].name);
  EXPECT_EQ(inspect(folder / "c", InspectFormat::kTable), before);
}

TEST(InspectCheckpointJson, SaysAllThatTheMetadataSays) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", small());
  const Json json = Json::parse(inspect(folder / "c", InspectFormat::kJson));
  EXPECT_EQ(json["checkpoint"], (folder / "c").string());
  EXPECT_EQ(json["save_id"], "00000000000000aa");
  EXPECT_EQ(json["data_bytes"], 48);
  EXPECT_EQ(json["elements"], 12);
  EXPECT_EQ(json["chunks"], 3);
  EXPECT_EQ(json["dtypes"]["F32"], Json({{"tensors", 1}, {"bytes", 48}}));
  EXPECT_EQ(json["files"][1],
            Json({{"name", metadata.files()[1].name}, {"bytes", metadata.files()[1].bytes}, {"chunks", 2}}));
  ASSERT_EQ(json["tensors"].size(), 2U);
  EXPECT_EQ(json["tensors"][0], Json::parse(R"({"name": "e", "dtype": "I64", "shape": [0], "elements": 0, "bytes": 0,
                                                "chunks": []})"));
  const StoredChunk chunk = metadata.find_tensor("w")->chunk(2);
  EXPECT_EQ(json["tensors"][1]["chunks"][2], Json({{"offsets", {3, 0}},
                                                   {"sizes", {1, 3}},
                                                   {"file", metadata.files()[1].name},
                                                   {"data_range", {chunk.begin, chunk.begin + 12}},
                                                   {"tensor_key", "w.__dcp_chunk_1"}}));
  EXPECT_EQ(json["values"][0], Json({{"name", "lr"}, {"value", "0.5"}}));
  EXPECT_EQ(json["structure"], "None");
}

TEST(PictureCheckpoint, OneTensorOrAll) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  EXPECT_THAT(picture(folder / "c", "w"), ::testing::StartsWith("w  F32 (4, 3): 3 chunks in 2 files\n  row-major │ "));
  EXPECT_EQ(picture(folder / "c", std::nullopt),
            "e  I64 (0,): 0 chunks in 0 files\n  no cells\n\n" + picture(folder / "c", "w"));
}

TEST(PictureCheckpoint, UnknownTensor_IsRefused) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  expect_error(ErrorCode::kInvalidArgument, "' has no tensor 'lr'", [&] { picture(folder / "c", "lr"); });
}

TEST(InspectCheckpoint, NoCheckpoint_PrintsNothing) {
  const TemporaryFolder folder;
  std::ostringstream out;
  expect_error(ErrorCode::kInvalidArgument, "there is no checkpoint in '",
               [&] { inspect_checkpoint(folder.path(), InspectFormat::kTable, out); });
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace hyper_parallel
