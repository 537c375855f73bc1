#include "hyper_parallel/tools/verify_command.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/stored_checkpoint.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const std::string kFile0 = "data-00000000000000aa-00000.safetensors";
const std::string kFile1 = "data-00000000000000aa-00001.safetensors";

/// 'w' lies on both ranks, in two chunks on the second; 'e' has no cells.
TestCheckpoint small() {
  return {{counting_tensor("w", {4, 3}, {{0, {{0, 0}, {2, 3}}}, {1, {{2, 0}, {1, 3}}}, {1, {{3, 0}, {1, 3}}}}),
           counting_tensor("b", {3}, {{0, {{0}, {3}}}}),
           {"e", DType::kI64, {0}, "", {}}},
          {{"step", Value(int64_t{7})}},
          {}};
}

VerifyReport verify(const std::filesystem::path& directory) {
  NoProgress quiet;
  return verify_checkpoint(directory, quiet);
}

std::vector<std::string> messages(const VerifyReport& report) {
  std::vector<std::string> messages;
  for (const CheckpointFault& fault : report.faults) {
    messages.push_back(str_cat(fault.file, " [", fault.tensor, "] ", fault.message));
  }
  return messages;
}

/// Changes the metadata's text, and leaves out its checksum.
void edit_metadata(const std::filesystem::path& directory, const std::string& from, const std::string& to) {
  std::string text = read_file(directory / ".metadata");
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << " in " << text;
  text.replace(at, from.size(), to);
  write_file(directory / ".metadata", text.substr(0, text.rfind(",\n\"crc32c\":")) + "}\n");
}

class CountingProgress final : public Progress {
 public:
  void start(int64_t total_bytes) override { total = total_bytes; }
  void advance(int64_t bytes) override { done += bytes; }
  void finish() override { ++finished; }
  int64_t total = -1;
  int64_t done = 0;
  int finished = 0;
};

TEST(Verify, SoundCheckpoint_HasNoFault) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  CountingProgress progress;
  const VerifyReport report = verify_checkpoint(folder / "c", progress);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.save_id, "00000000000000aa");
  EXPECT_EQ(report.files, 2);
  EXPECT_EQ(report.tensors, 3);
  EXPECT_EQ(report.chunks, 4);
  EXPECT_EQ(report.blocks, 4);
  EXPECT_EQ(report.bytes, 60);
  EXPECT_TRUE(report.unpublished.empty());
  EXPECT_EQ(progress.total, 60);
  EXPECT_EQ(progress.done, 60);
  EXPECT_EQ(progress.finished, 1);
}

TEST(Verify, CheckpointWithoutTensors_HasNoFault) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", {});
  EXPECT_TRUE(verify(folder / "c").ok());
  EXPECT_EQ(verify(folder / "c").blocks, 0);
}

TEST(Verify, DamagedBytes_EachBlockIsListed) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", small());
  damage_byte(folder / "c" / kFile0, metadata.files()[0].bytes - 1);
  damage_byte(folder / "c" / kFile1, metadata.files()[1].bytes - 1);
  damage_byte(folder / "c" / kFile1, metadata.files()[1].bytes - 13);
  const VerifyReport report = verify(folder / "c");
  EXPECT_EQ(report.fault_count, 3);
  EXPECT_THAT(messages(report), ElementsAre(HasSubstr(kFile0 + " [w] block 0 of chunk (0, 0)+(2, 3), bytes ["),
                                            HasSubstr(kFile1 + " [w] block 0 of chunk (2, 0)+(1, 3), bytes ["),
                                            HasSubstr(kFile1 + " [w] block 0 of chunk (3, 0)+(1, 3), bytes [")));
  EXPECT_THAT(report.faults[0].message, ::testing::ContainsRegex("has checksum 0x[0-9a-f]{8} but the metadata says "));
}

TEST(Verify, ManyFaults_AreCounted_AndTheFirst100Listed) {
  const TemporaryFolder folder;
  constexpr int64_t kChunks = 130;
  TestCheckpoint checkpoint{{counting_tensor("w", {kChunks}, {})}, {}, {}};
  for (int64_t i = 0; i < kChunks; ++i) checkpoint.tensors[0].chunks.push_back({0, {{i}, {1}}});
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", checkpoint);
  for (int64_t i = 0; i < kChunks; ++i) {
    damage_byte(folder / "c" / kFile0, metadata.files()[0].bytes - 4 * kChunks + 4 * i);
  }
  const VerifyReport report = verify(folder / "c");
  EXPECT_EQ(report.fault_count, kChunks);
  EXPECT_EQ(std::ssize(report.faults), kMaxListedFaults);
  std::ostringstream out;
  NoProgress quiet;
  EXPECT_FALSE(verify_checkpoint(folder / "c", VerifyFormat::kText, out, quiet));
  EXPECT_THAT(out.str(), HasSubstr("\n... and 30 more faults\n"));
}

TEST(Verify, MissingFile_IsAFault_AndTheOthersAreRead) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  std::filesystem::remove(folder / "c" / kFile0);
  const VerifyReport report = verify(folder / "c");
  EXPECT_THAT(messages(report), ElementsAre(kFile0 + " [] is missing"));
  EXPECT_EQ(report.blocks, 2);
}

TEST(Verify, SymbolicLink_IsNotFollowed) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  std::filesystem::rename(folder / "c" / kFile0, folder / "elsewhere");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "c" / kFile0);
  EXPECT_THAT(messages(verify(folder / "c")), ElementsAre(HasSubstr(" is a symbolic link, but a checkpoint's files")));
}

TEST(Verify, ShortenedFile_SizeHeaderAndBlocksAreListed) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  const std::filesystem::path file = folder / "c" / kFile1;
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_THAT(messages(verify(folder / "c")),
              ElementsAre(HasSubstr(" bytes, but the metadata says "), HasSubstr("the file is cut short"),
                          HasSubstr(", lies past the end of the file")));
}

TEST(Verify, LengthenedFile_IsAFault) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  write_file(folder / "c" / kFile1, read_file(folder / "c" / kFile1) + "x");
  EXPECT_THAT(messages(verify(folder / "c")), ElementsAre(HasSubstr(" bytes, but the metadata says "),
                                                          HasSubstr("every byte must belong to a tensor")));
}

TEST(Verify, HeaderThatDisagrees_IsToldFieldByField) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  // Same length, so that all bytes stay where they are.
  std::string text = read_file(folder / "c" / kFile0);
  const auto replace = [&text](const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    ASSERT_NE(text.find(from), std::string::npos) << text;
    text.replace(text.find(from), from.size(), to);
  };
  replace(R"("b":{"dtype":"F32","shape":[3])", R"("b":{"dtype":"I32","shape":[3])");
  replace(R"("w":{"dtype":"F32","shape":[2,3])", R"("w":{"dtype":"F32","shape":[3,2])");
  write_file(folder / "c" / kFile0, text);
  EXPECT_THAT(messages(verify(folder / "c")),
              ElementsAre(kFile0 + " [b] key 'b' has dtype I32, but the metadata says F32",
                          kFile0 + " [w] key 'w' has shape (3, 2), but the metadata says (2, 3)"));
}

TEST(Verify, KeyThatIsNotThere_IsAFault_AndSoIsOneTooMuch) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  std::string text = read_file(folder / "c" / kFile0);
  text.replace(text.find("\"b\":"), 4, "\"x\":");
  write_file(folder / "c" / kFile0, text);
  EXPECT_THAT(messages(verify(folder / "c")),
              ElementsAre(kFile0 + " [b] has no key 'b' for chunk (0,)+(3,)",
                          kFile0 + " [] holds 'x', of which the metadata does not know"));
}

TEST(Verify, RangesThatDisagree_AreTold) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", small());
  const int64_t begin = metadata.find_tensor("b")->chunk(0).begin;
  // Into the header: no other chunk has these bytes.
  edit_metadata(folder / "c", str_cat("[[0,", begin, ",0,3]]"), str_cat("[[0,", begin - 4, ",0,3]]"));
  EXPECT_THAT(messages(verify(folder / "c")),
              ElementsAre(str_cat(kFile0, " [b] key 'b' has the bytes [", begin, ", ", begin + 12,
                                  "), but the metadata says [", begin - 4, ", ", begin + 8, ")"),
                          HasSubstr(" [b] block 0 of chunk (0,)+(3,), bytes [")));
}

TEST(Verify, UnpublishedFiles_AreToldButNoFault_OthersAreNotLookedAt) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  write_file(folder / "c" / "data-00000000000000bb-00000.safetensors", "half");
  write_file(folder / "c" / "README", "of somebody");
  const VerifyReport report = verify(folder / "c");
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.unpublished, ElementsAre("data-00000000000000bb-00000.safetensors"));
}

TEST(Verify, DirectoryThatCannotBeOpened_IsRefused) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  expect_error(ErrorCode::kInvalidArgument, "No such file or directory", [&] { verify(folder / "none"); });
  expect_error(ErrorCode::kInvalidArgument, "Not a directory", [&] { verify(folder / "file"); });
}

TEST(Verify, MissingMetadata_IsAFault) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  std::filesystem::remove(folder / "c" / ".metadata");
  EXPECT_THAT(messages(verify(folder / "c")), ElementsAre(".metadata [] is missing"));
  EXPECT_THAT(messages(verify(folder.path())), ElementsAre(".metadata [] is missing"));
  EXPECT_EQ(verify(folder / "c").files, 0);
}

TEST(Verify, UnreadableMetadata_IsAFault) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  const std::filesystem::path path = folder / "c" / ".metadata";
  edit_metadata(folder / "c", "\"shape\":[4,3]", "\"shape\":[4,5]");
  EXPECT_THAT(messages(verify(folder / "c")), ElementsAre(HasSubstr(".metadata [] '" + path.string() + "': ")));
  write_file(path, "{\x01");
  const VerifyReport report = verify(folder / "c");
  EXPECT_EQ(report.fault_count, 1);
  EXPECT_THAT(report.faults[0].message, Not(HasSubstr("\x01")));
  std::filesystem::rename(path, folder / "elsewhere");
  std::filesystem::create_symlink(folder / "elsewhere", path);
  EXPECT_THAT(messages(verify(folder / "c")), ElementsAre(HasSubstr(" is a symbolic link, but a checkpoint's files")));
}

TEST(Verify, MissingMetadata_HasAReportOfBothForms) {
  const TemporaryFolder folder;
  NoProgress quiet;
  std::ostringstream text;
  EXPECT_FALSE(verify_checkpoint(folder.path(), VerifyFormat::kText, text, quiet));
  EXPECT_EQ(text.str(), str_cat(".metadata: is missing\n'", folder.path().string(),
                                "': 1 fault; read 0 blocks, 0 B (0 bytes), of 0 chunks in 0 files\n"));
  std::ostringstream json;
  EXPECT_FALSE(verify_checkpoint(folder.path(), VerifyFormat::kJson, json, quiet));
  EXPECT_EQ(Json::parse(json.str())["faults"],
            Json::parse(R"([{"file": ".metadata", "tensor": "", "message": "is missing"}])"));
}

TEST(Verify, Text_SaysWhatWasRead) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", small());
  write_file(folder / "c" / "data-00000000000000bb-00000.safetensors", "half");
  std::ostringstream out;
  NoProgress quiet;
  EXPECT_TRUE(verify_checkpoint(folder / "c", VerifyFormat::kText, out, quiet));
  EXPECT_EQ(out.str(),
            str_cat("data-00000000000000bb-00000.safetensors: not a part of the checkpoint, left by a save "
                    "that did not finish or is under way\n'",
                    (folder / "c").string(), "': ok; read 4 blocks, 60 B (60 bytes), of 4 chunks in 2 files\n"));
}

TEST(Verify, Json_SaysTheSame) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", small());
  damage_byte(folder / "c" / kFile0, metadata.files()[0].bytes - 1);
  std::ostringstream out;
  NoProgress quiet;
  EXPECT_FALSE(verify_checkpoint(folder / "c", VerifyFormat::kJson, out, quiet));
  const Json json = Json::parse(out.str());
  EXPECT_EQ(json["checkpoint"], (folder / "c").string());
  EXPECT_EQ(json["save_id"], "00000000000000aa");
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["files"], 2);
  EXPECT_EQ(json["tensors"], 3);
  EXPECT_EQ(json["chunks"], 4);
  EXPECT_EQ(json["blocks"], 4);
  EXPECT_EQ(json["bytes"], 60);
  EXPECT_EQ(json["fault_count"], 1);
  ASSERT_EQ(json["faults"].size(), 1U);
  EXPECT_EQ(json["faults"][0]["file"], kFile0);
  EXPECT_EQ(json["faults"][0]["tensor"], "w");
  EXPECT_EQ(json["unpublished"], Json::array());
}

}  // namespace
}  // namespace hyper_parallel
