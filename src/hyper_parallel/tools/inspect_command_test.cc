#include "hyper_parallel/tools/inspect_command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "hyper_parallel/checkpoint/safetensors_codec.h"
#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::json;

void write_tensors(const std::filesystem::path& path, const SafetensorsHeader& header) {
  write_file(path, write_safetensors_header(header) + std::string(static_cast<size_t>(header.data_size()), '\0'));
}

std::string inspect(const std::filesystem::path& path, InspectFormat format) {
  std::ostringstream out;
  inspect_safetensors(path, {.format = format}, out);
  return out.str();
}

SafetensorsHeader small_model() {
  return arrange_tensors({{"embedding", DType::kF32, {100, 20}},
                          {"bias", DType::kF32, {}},
                          {"mask", DType::kF4, {4}},
                          {"e", DType::kI64, {0}}},
                         {{"format", "pt"}});
}

TEST(InspectTable, ListsTensorsTotalsAndMetadata) {
  const TemporaryFolder folder;
  write_tensors(folder / "f", small_model());
  EXPECT_EQ(inspect(folder / "f", InspectFormat::kTable),
            "name       dtype  shape         size\n"
            "e          I64    (0,)           0 B\n"
            "bias       F32    ()             4 B\n"
            "embedding  F32    (100, 20)  7.8 KiB\n"
            "mask       F4     (4,)           2 B\n"
            "\n"
            "F4: 1 tensor, 4 elements, 2 B (2 bytes)\n"
            "F32: 2 tensors, 2001 elements, 7.8 KiB (8004 bytes)\n"
            "I64: 1 tensor, 0 elements, 0 B (0 bytes)\n"
            "total: 4 tensors, 2005 elements, 7.8 KiB (8006 bytes)\n"
            "file: 8.1 KiB (8286 bytes), data from byte 280\n"
            "metadata format: pt\n");
}

TEST(InspectTable, FileWithoutTensors_HasZeroTotals) {
  const TemporaryFolder folder;
  write_tensors(folder / "f", SafetensorsHeader());
  EXPECT_EQ(inspect(folder / "f", InspectFormat::kTable),
            "name  dtype  shape  size\n\ntotal: 0 tensors, 0 elements, 0 B (0 bytes)\n"
            "file: 16 B (16 bytes), data from byte 16\n");
}

TEST(InspectTable, ControlCharactersInNames_DoNotReachTheTerminal) {
  const TemporaryFolder folder;
  write_tensors(folder / "f", arrange_tensors({{"a\x1b[31m\nb", DType::kU8, {1}}}, {{"k\x1b", "v\r"}}));
  const std::string table = inspect(folder / "f", InspectFormat::kTable);
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
  EXPECT_EQ(table.find('\r'), std::string::npos);
  EXPECT_THAT(table, ::testing::HasSubstr(R"(a\x1b[31m\x0ab  U8)"));
  EXPECT_THAT(table, ::testing::HasSubstr(R"(metadata k\x1b: v\x0d)"));
}

TEST(InspectTable, ColumnsFollowCodePoints_AndALongNamePushesOnlyItsOwnRow) {
  const TemporaryFolder folder;
  const std::string long_name(1000, 'x');
  write_tensors(folder / "f", arrange_tensors({{"\u00e4\u00e4\u00e4\u00e4\u00e4", DType::kU8, {1}},
                                               {"b", DType::kU8, {1}},
                                               {long_name, DType::kU8, {1}}}));
  const std::string table = inspect(folder / "f", InspectFormat::kTable);
  EXPECT_THAT(table, ::testing::HasSubstr("\nb      U8     (1,)    1 B\n"));
  EXPECT_THAT(table, ::testing::HasSubstr("\n\u00e4\u00e4\u00e4\u00e4\u00e4  U8     (1,)    1 B\n"));
  EXPECT_THAT(table, ::testing::HasSubstr("\n" + long_name + "  U8     (1,)    1 B\n"));
}

TEST(InspectJson, SaysAllThatTheHeaderSays) {
  const TemporaryFolder folder;
  write_tensors(folder / "f", small_model());
  const Json json = Json::parse(inspect(folder / "f", InspectFormat::kJson));
  EXPECT_EQ(json["file"], (folder / "f").string());
  EXPECT_EQ(json["file_bytes"], std::filesystem::file_size(folder / "f"));
  EXPECT_EQ(json["header_bytes"], write_safetensors_header(small_model()).size() - 8);
  EXPECT_EQ(json["data_bytes"], 8006);
  EXPECT_EQ(json["elements"], 2005);
  EXPECT_EQ(json["metadata"], Json({{"format", "pt"}}));
  EXPECT_EQ(json["dtypes"]["F32"], Json({{"tensors", 2}, {"bytes", 8004}}));
  ASSERT_EQ(json["tensors"].size(), 4U);
  EXPECT_EQ(json["tensors"][0], Json::parse(R"({"name":"e","dtype":"I64","shape":[0],"elements":0,"bytes":0,)"
                                            R"("data_offsets":[0,0]})"));
  EXPECT_EQ(json["tensors"][2], Json::parse(R"({"name":"embedding","dtype":"F32","shape":[100,20],"elements":2000,)"
                                            R"("bytes":8000,"data_offsets":[4,8004]})"));
}

TEST(InspectJson, EmptyParts_KeepTheirTypes) {
  const TemporaryFolder folder;
  write_tensors(folder / "f", SafetensorsHeader());
  const Json empty = Json::parse(inspect(folder / "f", InspectFormat::kJson));
  EXPECT_EQ(empty["tensors"], Json::array());
  EXPECT_EQ(empty["metadata"], Json::object());
  EXPECT_EQ(empty["dtypes"], Json::object());
  write_tensors(folder / "f", arrange_tensors({{"a", DType::kU8, {}}}));
  EXPECT_EQ(Json::parse(inspect(folder / "f", InspectFormat::kJson))["tensors"][0]["shape"], Json::array());
}

TEST(InspectJson, NamesAreExact_AndAPathThatIsNotUtf8StillPrints) {
  const TemporaryFolder folder;
  const std::string name = "a\x1b\n\"\u5c42";
  write_tensors(folder / "f\xff", arrange_tensors({{name, DType::kU8, {1}}}));
  const Json json = Json::parse(inspect(folder / "f\xff", InspectFormat::kJson));
  EXPECT_EQ(json["tensors"][0]["name"], name);
}

TEST(Inspect, RefusedFile_PrintsNothingAndIsOneLine) {
  const TemporaryFolder folder;
  write_file(folder / "f", "not a safetensors file\n");
  for (const InspectFormat format : {InspectFormat::kTable, InspectFormat::kJson}) {
    std::ostringstream out;
    expect_error(ErrorCode::kDataLoss, "f': the first 8 bytes declare a header of ",
                 [&] { inspect_safetensors(folder / "f", {.format = format}, out); });
    EXPECT_EQ(out.str(), "");
  }
  expect_error(ErrorCode::kInvalidArgument, "it is a directory",
               [&] { inspect(folder.path(), InspectFormat::kTable); });
}

}  // namespace
}  // namespace hyper_parallel
