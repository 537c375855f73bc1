#include "hyper_parallel/tools/reshard_command.h"

#include <gmock/gmock.h>

#include <set>

#include "hyper_parallel/tools/diff_command.h"
#include "hyper_parallel/tools/verify_command.h"
#include "tests/support/expect_error.h"
#include "tests/support/stored_checkpoint.h"

namespace hyper_parallel {
namespace {

/// Tensors of several ranks and widths; "w.A" stands between keys of "w" with and without numbers.
TestCheckpoint model() {
  TestCheckpoint checkpoint;
  checkpoint.tensors = {
      counting_tensor("w", {6, 4, 2}, {{0, {{0, 0, 0}, {6, 1, 2}}}, {1, {{0, 1, 0}, {6, 3, 2}}}}),
      counting_tensor("w.A", {12, 5}, {{0, {{0, 0}, {5, 5}}}, {1, {{5, 0}, {7, 5}}}}),
      {"i", DType::kI64, {24}, counting_bytes<int64_t>(24), {{1, {{0}, {24}}}}},
      {"m", DType::kU8, {12}, counting_bytes<uint8_t>(12), {{0, {{0}, {12}}}}},
      {"e", DType::kBF16, {0, 3}, "", {}},
  };
  checkpoint.values = {{"lr", Value(0.25)}, {"name", Value(std::string("run"))}};
  ValueDict structure;
  for (const char* name : {"e", "i", "lr", "m", "name", "w", "w.A"}) structure.items.emplace_back(name, name);
  checkpoint.structure = Value(std::move(structure));
  return checkpoint;
}

ReshardOptions options_of(int64_t ranks) {
  ReshardOptions options;
  options.layout = {ranks, Shard(0), std::nullopt};
  return options;
}

void reshard(const std::filesystem::path& in, const std::filesystem::path& out, const ReshardOptions& options) {
  NoProgress quiet;
  reshard_checkpoint(in, out, options, quiet);
}

/// Resharded, every tensor is what it was, cell by cell; the result verifies and no other file is there.
void expect_resharded(const ReshardOptions& options) {
  SCOPED_TRACE(to_string(options.layout.placement));
  const TemporaryFolder folder;
  const TestCheckpoint checkpoint = model();
  const CheckpointMetadata before = write_checkpoint(folder / "in", checkpoint);
  reshard(folder / "in", folder / "out", options);
  for (const TestTensor& tensor : checkpoint.tensors) {
    EXPECT_EQ(stored_bytes(folder / "out", tensor.name), tensor.bytes) << tensor.name;
  }
  const CheckpointMetadata after = metadata_of(folder / "out");
  EXPECT_EQ(after.values(), before.values());
  EXPECT_EQ(after.structure(), before.structure());
  NoProgress quiet;
  const VerifyReport report = verify_checkpoint(folder / "out", quiet);
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(report.unpublished.empty());
  EXPECT_TRUE(diff_checkpoints(folder / "in", folder / "out", quiet).equal());
}

TEST(Reshard, EveryLayout_KeepsEveryCell) {
  for (const int64_t ranks : {1, 2, 3, 7, 24}) expect_resharded(options_of(ranks));
  const auto with = [](int64_t ranks, Placement placement, std::optional<Placement> fallback) {
    ReshardOptions options;
    options.layout = {ranks, std::move(placement), std::move(fallback)};
    return options;
  };
  expect_resharded(with(3, Shard(1), Replicate()));
  expect_resharded(with(3, Shard(-1), std::nullopt));
  expect_resharded(with(5, Replicate(), std::nullopt));
  expect_resharded(with(3, RaggedShard({0}, {1, 0, 2}), std::nullopt));
  expect_resharded(with(4, RaggedShard({0, 1}, {0, 5, 6, 1}), Shard(0)));
  expect_resharded(with(3, RaggedShard({0, 1, 2}, {7, 34, 7}), Replicate()));
}

TEST(Reshard, Boxes_AreThoseOfTheLayout) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  ReshardOptions options;
  options.layout = {3, RaggedShard({0, 1, 2}, {7, 34, 7}), Replicate()};
  reshard(folder / "in", folder / "out", options);
  const CheckpointMetadata metadata = metadata_of(folder / "out");
  std::set<std::string> boxes;
  const StoredTensor& tensor = *metadata.find_tensor("w");
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) boxes.insert(to_string(tensor.chunk_box(i)));
  std::set<std::string> expected;
  for (const RankBoxes& of_rank : stored_boxes(options.layout, tensor)) {
    for (const Box& box : of_rank.boxes) expected.insert(to_string(box));
  }
  EXPECT_EQ(boxes, expected);
  EXPECT_EQ(metadata.files().size(), 3U);
}

TEST(Reshard, EmptyRank_WritesNoFile) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", {{counting_tensor("w", {4}, {{0, {{0}, {4}}}})}, {}, {}});
  ReshardOptions options;
  options.layout = {4, RaggedShard({0}, {1, 0, 3, 0}), std::nullopt};
  reshard(folder / "in", folder / "out", options);
  EXPECT_EQ(metadata_of(folder / "out").files().size(), 2U);
}

TEST(Reshard, CheckpointWithoutTensors_IsCarriedOver) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", {{}, {{"lr", Value(0.5)}}, {}});
  reshard(folder / "in", folder / "out", options_of(2));
  EXPECT_EQ(metadata_of(folder / "out").values(), metadata_of(folder / "in").values());
  EXPECT_TRUE(metadata_of(folder / "out").files().empty());
}

TEST(Reshard, TensorLargerThanASlab_IsKeptWhole) {
  const TemporaryFolder folder;
  constexpr int64_t kRows = 3000;
  constexpr int64_t kColumns = 4099;  // 12 MB, rows that no slab and no block ends with
  std::string bytes(kRows * kColumns, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 13);
  std::filesystem::create_directories(folder / "in");
  const std::vector<DataChunk> chunks = {{"w", DType::kU8, {kRows, kColumns}}};
  const std::string name = data_file_name("00000000000000aa", 0);
  DataFile file(folder / "in" / name, chunks);
  file.append(std::as_bytes(std::span(bytes)));
  const WrittenFile written = file.finish();
  StoredTensor stored("w", DType::kU8, {kRows, kColumns});
  stored.add_chunk(whole_box({kRows, kColumns}), 0, written.chunks[0].begin, "", written.chunks[0].checksums);
  CheckpointParts parts;
  parts.save_id = "00000000000000aa";
  parts.files = {{name, written.bytes}};
  parts.tensors = {stored};
  write_file(folder / "in" / ".metadata", write_metadata(CheckpointMetadata(std::move(parts))));
  ReshardOptions options;
  options.memory = kMinReshardMemory;
  options.layout = {3, Shard(1), std::nullopt};
  reshard(folder / "in", folder / "columns", options);
  options.layout = {3, RaggedShard({0, 1}, {1, 5, 0}), Shard(0)};
  options.layout.placement = RaggedShard({0}, {1, 4, 0});
  reshard(folder / "columns", folder / "rows", options);
  NoProgress quiet;
  EXPECT_TRUE(diff_checkpoints(folder / "in", folder / "columns", quiet).equal());
  EXPECT_TRUE(diff_checkpoints(folder / "in", folder / "rows", quiet).equal());
  EXPECT_TRUE(verify_checkpoint(folder / "columns", quiet).ok());
}

TEST(Reshard, CheckpointInOut_IsReplacedAndNothingElse) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  const CheckpointMetadata old =
      write_checkpoint(folder / "out", {{counting_tensor("old", {4}, {{0, {{0}, {4}}}})}, {}, {}, "00000000000000bb"});
  write_file(folder / "out" / "README", "of somebody");
  reshard(folder / "in", folder / "out", options_of(2));
  EXPECT_EQ(metadata_of(folder / "out").find_tensor("old"), nullptr);
  EXPECT_FALSE(std::filesystem::exists(folder / "out" / old.files()[0].name));
  EXPECT_EQ(read_file(folder / "out" / "README"), "of somebody");
}

TEST(Reshard, DamagedInput_LeavesOutAsItWas) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "in", model());
  write_checkpoint(folder / "out", {{counting_tensor("old", {4}, {{0, {{0}, {4}}}})}, {}, {}, "00000000000000bb"});
  damage_byte(folder / "in" / metadata.files()[1].name, metadata.files()[1].bytes - 1);
  expect_error(ErrorCode::kDataLoss, " has checksum ", [&] { reshard(folder / "in", folder / "out", options_of(2)); });
  EXPECT_EQ(stored_bytes(folder / "out", "old"), counting_bytes<float>(4));
  NoProgress quiet;
  EXPECT_TRUE(verify_checkpoint(folder / "out", quiet).unpublished.empty());
}

TEST(Reshard, DamagedInput_LeavesANewOutWithTheLockAlone_AndAnotherTryWorks) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "in", model());
  const std::filesystem::path file = folder / "in" / metadata.files()[1].name;
  damage_byte(file, metadata.files()[1].bytes - 1);
  expect_error(ErrorCode::kDataLoss, " has checksum ", [&] { reshard(folder / "in", folder / "out", options_of(2)); });
  EXPECT_TRUE(holds_lock_alone(folder / "out"));
  damage_byte(file, metadata.files()[1].bytes - 1);
  reshard(folder / "in", folder / "out", options_of(2));
  NoProgress quiet;
  EXPECT_TRUE(diff_checkpoints(folder / "in", folder / "out", quiet).equal());
}

TEST(Reshard, OntoItself_IsRefusedUnderAnyName) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  std::filesystem::create_directory_symlink(folder / "in", folder / "link");
  for (const char* out : {"in", "link"}) {
    expect_error(ErrorCode::kInvalidArgument, "OUT is IN, '",
                 [&] { reshard(folder / "in", folder / out, options_of(2)); });
  }
}

TEST(Reshard, TooLittleMemory_IsRefused) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  ReshardOptions options = options_of(2);
  options.memory = kMinReshardMemory - 1;
  expect_error(ErrorCode::kInvalidArgument, "--memory is 8388607 bytes, but must be at least 8388608 (8MiB)",
               [&] { reshard(folder / "in", folder / "out", options); });
}

TEST(Reshard, LayoutThatDoesNotFit_WritesNothing) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "in", model());
  ReshardOptions options;
  options.layout = {2, RaggedShard({0}, {3, 4}), std::nullopt};
  expect_error(ErrorCode::kInvalidArgument, "--fallback shard",
               [&] { reshard(folder / "in", folder / "out", options); });
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(Reshard, ManyRanks_AreWrittenInGroups) {
  const TemporaryFolder folder;
  const TestCheckpoint checkpoint{{counting_tensor("w", {600}, {{0, {{0}, {600}}}})}, {}, {}};
  write_checkpoint(folder / "in", checkpoint);
  reshard(folder / "in", folder / "out", options_of(600));
  EXPECT_EQ(metadata_of(folder / "out").files().size(), 600U);
  EXPECT_EQ(stored_bytes(folder / "out", "w"), checkpoint.tensors[0].bytes);
}

}  // namespace
}  // namespace hyper_parallel
