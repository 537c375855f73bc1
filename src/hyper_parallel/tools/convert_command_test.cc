#include "hyper_parallel/tools/convert_command.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "hyper_parallel/checkpoint/safetensors_codec.h"
#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "hyper_parallel/tools/diff_command.h"
#include "hyper_parallel/tools/huggingface_folder.h"
#include "hyper_parallel/tools/verify_command.h"
#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/stored_checkpoint.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;

/// Three tensors over two ranks, one of them without cells.
TestCheckpoint model() {
  return {{counting_tensor("a", {6, 2}, {{0, {{0, 0}, {6, 1}}}, {1, {{0, 1}, {6, 1}}}}),
           {"b", DType::kI64, {3}, counting_bytes<int64_t>(3), {{1, {{0}, {3}}}}},
           {"e", DType::kF32, {0}, "", {}}},
          {},
          {}};
}

ConvertOptions options_to(CheckpointFormat to) {
  ConvertOptions options;
  options.to = to;
  options.run = [](const std::vector<std::string>&) -> int { throw std::logic_error("no program is needed"); };
  return options;
}

void convert(const std::filesystem::path& in, const std::filesystem::path& out, const ConvertOptions& options) {
  NoProgress quiet;
  convert_checkpoint(in, out, options, quiet);
}

std::string tensor_in(const std::filesystem::path& file, const std::string& name) {
  return text_of(SafetensorsFile(file).bytes(name));
}

/// A safetensors file of these tensors, their bytes zero.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorSpec> specs) {
  const SafetensorsHeader header = arrange_tensors(std::move(specs));
  write_file(path, write_safetensors_header(header) + std::string(static_cast<size_t>(header.data_size()), '\0'));
}

TEST(ConvertToHuggingface, TensorsAreWhole_InOneShardWithAnIndex) {
  const TemporaryFolder folder;
  const TestCheckpoint checkpoint = model();
  write_checkpoint(folder / "in", checkpoint);
  convert(folder / "in", folder / "out", options_to(CheckpointFormat::kHuggingface));
  const std::string shard = "model-00001-of-00001.safetensors";
  EXPECT_EQ(tensor_in(folder / "out" / shard, "a"), checkpoint.tensors[0].bytes);
  EXPECT_EQ(tensor_in(folder / "out" / shard, "b"), checkpoint.tensors[1].bytes);
  const SafetensorsFile file(folder / "out" / shard);
  EXPECT_EQ(file.header().metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_EQ(file.header().at("e").shape, (std::vector<int64_t>{0}));
  EXPECT_EQ(Json::parse(read_file(folder / "out" / "model.safetensors.index.json")),
            Json({{"metadata", {{"total_size", 72}}}, {"weight_map", {{"a", shard}, {"b", shard}, {"e", shard}}}}));
}

TEST(ConvertToHuggingface, MaxFileSize_CutsBetweenTensors) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  ConvertOptions options = options_to(CheckpointFormat::kHuggingface);
  options.max_file_size = 47;  // less than 'a' alone, which then has a file of its own
  convert(folder / "in", folder / "out", options);
  const Json index = Json::parse(read_file(folder / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"]["a"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["b"], "model-00002-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["e"], "model-00002-of-00002.safetensors");
}

TEST(ConvertToHuggingface, Values_AreRefusedUnlessDropped) {
  const TemporaryFolder folder;
  TestCheckpoint checkpoint = model();
  checkpoint.values = {{"lr", Value(0.5)}};
  write_checkpoint(folder / "in", checkpoint);
  ConvertOptions options = options_to(CheckpointFormat::kHuggingface);
  expect_error(
      ErrorCode::kInvalidArgument,
      "IN holds 1 value beside tensors, 'lr' for one, and a Hugging Face folder holds tensors alone; --drop-values "
      "leaves them out",
      [&] { convert(folder / "in", folder / "out", options); });
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  options.values = ValuePolicy::kDrop;
  convert(folder / "in", folder / "out", options);
  EXPECT_TRUE(std::filesystem::exists(folder / "out" / "model.safetensors.index.json"));
}

TEST(ConvertToHuggingface, FolderThatIsNotEmpty_IsRefused) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  std::filesystem::create_directory(folder / "out");
  write_file(folder / "out" / "README", "of somebody");
  expect_error(ErrorCode::kInvalidArgument, " is not empty: it holds 'README', for example",
               [&] { convert(folder / "in", folder / "out", options_to(CheckpointFormat::kHuggingface)); });
  expect_error(ErrorCode::kInvalidArgument, "cannot create directory '",
               [&] { convert(folder / "in", folder / "no" / "out", options_to(CheckpointFormat::kHuggingface)); });
}

TEST(ConvertToHuggingface, DamagedInput_LeavesNoFile) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "in", model());
  damage_byte(folder / "in" / metadata.files()[1].name, metadata.files()[1].bytes - 1);
  ConvertOptions options = options_to(CheckpointFormat::kHuggingface);
  options.max_file_size = 1;
  expect_error(ErrorCode::kDataLoss, " has checksum ", [&] { convert(folder / "in", folder / "out", options); });
  EXPECT_TRUE(std::filesystem::is_empty(folder / "out"));
}

TEST(ConvertFromHuggingface, ThereAndBack_IsEqual) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  for (const int64_t max_file_size : {1, 50, 1'000'000}) {
    ConvertOptions options = options_to(CheckpointFormat::kHuggingface);
    options.max_file_size = max_file_size;
    const std::filesystem::path model_folder = folder / str_cat("hf", max_file_size);
    const std::filesystem::path back = folder / str_cat("back", max_file_size);
    convert(folder / "in", model_folder, options);
    convert(model_folder, back, options_to(CheckpointFormat::kHyperParallel));
    NoProgress quiet;
    EXPECT_TRUE(diff_checkpoints(folder / "in", back, quiet).equal());
    EXPECT_TRUE(verify_checkpoint(back, quiet).ok());
    EXPECT_EQ(metadata_of(back).files().size(), 1U);
  }
}

TEST(ConvertFromHuggingface, SingleFile_NeedsNoIndex) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "in");
  write_safetensors(folder / "in" / "model.safetensors", {{"w", DType::kF32, {2}}});
  convert(folder / "in", folder / "out", options_to(CheckpointFormat::kHyperParallel));
  EXPECT_EQ(stored_bytes(folder / "out", "w"), std::string(8, '\0'));
}

class StoppingProgress final : public Progress {
 public:
  void start(int64_t) override {}
  void advance(int64_t) override { throw std::runtime_error("stopped"); }
  void finish() override {}
};

TEST(ConvertFromHuggingface, Stopped_LeavesANewOutWithTheLockAlone_AndAnotherTryWorks) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "in");
  write_safetensors(folder / "in" / "model.safetensors", {{"w", DType::kF32, {2}}});
  StoppingProgress progress;
  EXPECT_THROW(huggingface_to_checkpoint(folder / "in", folder / "out", progress), std::runtime_error);
  EXPECT_TRUE(holds_lock_alone(folder / "out"));
  convert(folder / "in", folder / "out", options_to(CheckpointFormat::kHyperParallel));
  EXPECT_EQ(stored_bytes(folder / "out", "w"), std::string(8, '\0'));
}

TEST(ConvertFromHuggingface, FolderWithoutTensors_IsAnEmptyCheckpoint) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "in");
  write_safetensors(folder / "in" / "model.safetensors", {});
  convert(folder / "in", folder / "out", options_to(CheckpointFormat::kHyperParallel));
  EXPECT_TRUE(metadata_of(folder / "out").tensors().empty());
}

/// A folder of two shards, and its index as the test wants it.
struct Sharded {
  Sharded() {
    write_safetensors(folder / "x.safetensors", {{"a", DType::kF32, {1}}});
    write_safetensors(folder / "y.safetensors", {{"b", DType::kF32, {1}}});
  }
  void write_index(const std::string& weight_map) const {
    write_file(folder / "model.safetensors.index.json",
               R"({"metadata": {"total_size": 8}, "weight_map": )" + weight_map + "}");
  }
  void expect_refused(ErrorCode code, const std::string& text) const {
    expect_error(code, text, [&] { HuggingfaceFolder(folder.path()); });
  }

  TemporaryFolder folder;
};

TEST(HuggingfaceFolder, Index_ThatAgrees_IsTaken) {
  const Sharded sharded;
  sharded.write_index(R"({"a": "x.safetensors", "b": "y.safetensors"})");
  EXPECT_EQ(HuggingfaceFolder(sharded.folder.path()).tensors().size(), 2U);
}

TEST(HuggingfaceFolder, Index_ThatDisagreesWithTheFiles_IsRefused) {
  const Sharded sharded;
  sharded.write_index(R"({"a": "x.safetensors", "b": "z.safetensors"})");
  sharded.expect_refused(ErrorCode::kDataLoss, "z.safetensors', which the index names, is missing");
  sharded.write_index(R"({"a": "x.safetensors", "b": "y.safetensors", "c": "x.safetensors"})");
  sharded.expect_refused(ErrorCode::kDataLoss, "says that tensor 'c' is in 'x.safetensors', but it is not there");
  sharded.write_index(R"({"a": "y.safetensors", "b": "x.safetensors"})");
  sharded.expect_refused(ErrorCode::kDataLoss, "says that tensor 'a' is in 'y.safetensors', but it is not there");
  write_safetensors(sharded.folder / "x.safetensors", {{"a", DType::kF32, {1}}, {"c", DType::kF32, {1}}});
  sharded.write_index(R"({"a": "x.safetensors", "b": "y.safetensors"})");
  sharded.expect_refused(ErrorCode::kDataLoss, "x.safetensors' holds tensor 'c', of which the index does not know");
  write_safetensors(sharded.folder / "y.safetensors", {{"a", DType::kF32, {1}}, {"b", DType::kF32, {1}}});
  sharded.expect_refused(ErrorCode::kDataLoss, "tensor 'a' is in two files, ");
}

TEST(HuggingfaceFolder, Paths_OutsideTheFolder_AreRefused) {
  const Sharded sharded;
  for (const char* name : {"../x.safetensors", "/etc/passwd", "sub/x.safetensors", ".hidden", ""}) {
    sharded.write_index(str_cat(R"({"a": ")", name, R"("})"));
    sharded.expect_refused(ErrorCode::kDataLoss, " must be one path component that is not hidden");
  }
  std::filesystem::create_symlink(sharded.folder / "x.safetensors", sharded.folder / "link.safetensors");
  sharded.write_index(R"({"a": "link.safetensors"})");
  sharded.expect_refused(ErrorCode::kDataLoss, " is a symbolic link");
}

TEST(HuggingfaceFolder, Choice_NoneOrTwoModels_AreRefused) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::kInvalidArgument, "holds neither 'model.safetensors' nor 'model.safetensors.index.json'",
               [&] { HuggingfaceFolder(folder.path()); });
  write_safetensors(folder / "model.safetensors", {});
  write_file(folder / "model.safetensors.index.json", "{}");
  expect_error(ErrorCode::kInvalidArgument, "and nothing says which is the model: move one away",
               [&] { HuggingfaceFolder(folder.path()); });
}

TEST(HuggingfaceIndex, OtherFields_ArePassedOver) {
  EXPECT_THAT(
      parse_huggingface_index(
          R"({"x": [1, {"weight_map": {"n": 1}}, null, true, 1.5, -1], "weight_map": {"a": "f"}, "y": {"z": {}}})",
          "i"),
      ElementsAre(std::pair<const std::string, std::string>("a", "f")));
}

TEST(HuggingfaceIndex, TextThatIsNone_IsRefused) {
  const auto refused = [](const std::string& text, const std::string& message) {
    expect_error(ErrorCode::kDataLoss, "'i' is not the index of a Hugging Face folder: " + message,
                 [&] { parse_huggingface_index(text, "'i'"); });
  };
  refused("", "it is not JSON at its byte ");
  refused("{\"weight_map\": {}} x", "it is not JSON at its byte ");
  refused(std::string("{\"weight_map\": {}}\0", 19), "it holds a zero byte at 18");
  refused("[]", "it must be a JSON object");
  refused("7", "it must be a JSON object");
  refused("{}", "it has no 'weight_map'");
  refused(R"({"weight_map": {}, "weight_map": {}})", "it has 'weight_map' twice");
  refused(R"({"weight_map": {"a": "f", "a": "f"}})", "its weight_map has tensor 'a' twice");
  for (const char* value : {"1", "null", "true", "[]", "{}", "1.5", "-1"}) {
    refused(str_cat(R"({"weight_map": {"a": )", value, "}}"), "its weight_map must be an object of strings");
  }
  for (const char* value : {"1", "null", "[]", "\"f\""}) {
    refused(str_cat(R"({"weight_map": )", value, "}"), "its weight_map must be an object of strings");
  }
  refused(std::string(100'000, '['), "it must be a JSON object");
}

TEST(ConvertFormats, AreDetected) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "ours", model());
  EXPECT_EQ(detect_checkpoint_format(folder / "ours"), CheckpointFormat::kHyperParallel);
  std::filesystem::create_directory(folder / "other");
  expect_error(ErrorCode::kInvalidArgument,
               "holds no checkpoint: neither '.metadata' nor 'model.safetensors' nor 'model.safetensors.index.json'",
               [&] { detect_checkpoint_format(folder / "other"); });
  write_file(folder / "other" / "model.safetensors.index.json", "{}");
  EXPECT_EQ(detect_checkpoint_format(folder / "other"), CheckpointFormat::kHuggingface);
  write_file(folder / "other" / ".metadata", "\x80\x02}.");
  EXPECT_EQ(detect_checkpoint_format(folder / "other"), CheckpointFormat::kTorch);
  write_file(folder / "other" / ".metadata", "");
  expect_error(ErrorCode::kInvalidArgument, "is neither this library's nor torch.distributed.checkpoint's",
               [&] { detect_checkpoint_format(folder / "other"); });
  expect_error(ErrorCode::kInvalidArgument, "No such file or directory",
               [&] { detect_checkpoint_format(folder / "none"); });
}

TEST(ConvertFormats, HaveNames) {
  for (const char* name : {"hyper_parallel", "huggingface", "torch"}) {
    EXPECT_EQ(to_string(parse_checkpoint_format(name)), name);
  }
  expect_error(ErrorCode::kInvalidArgument, "--to: 'pickle' is not one of hyper_parallel, huggingface, torch",
               [] { parse_checkpoint_format("pickle"); });
}

TEST(Convert, SameFormatOrSamePlace_IsRefused) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  expect_error(ErrorCode::kInvalidArgument, "is in the format hyper_parallel already",
               [&] { convert(folder / "in", folder / "out", options_to(CheckpointFormat::kHyperParallel)); });
  expect_error(ErrorCode::kInvalidArgument, "OUT is IN, '",
               [&] { convert(folder / "in", folder / "in", options_to(CheckpointFormat::kHuggingface)); });
}

TEST(Convert, OptionsOfAnotherFormat_AreRefused) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  ConvertOptions options = options_to(CheckpointFormat::kTorch);
  options.max_file_size = 1;
  expect_error(ErrorCode::kInvalidArgument, "--max-file-size is an option of --to huggingface, not of --to torch",
               [&] { convert(folder / "in", folder / "out", options); });
  options = options_to(CheckpointFormat::kHyperParallel);
  options.values = ValuePolicy::kDrop;
  expect_error(ErrorCode::kInvalidArgument,
               "--drop-values is an option of --to huggingface, not of --to hyper_parallel, which keeps values",
               [&] { convert(folder / "in", folder / "out", options); });
}

}  // namespace
}  // namespace hyper_parallel
