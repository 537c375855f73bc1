#include "hyper_parallel/tools/diff_command.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/expect_error.h"
#include "tests/support/stored_checkpoint.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::json;
using Kind = EntryDifference::Kind;

const Box kWhole = {{0, 0}, {4, 3}};

TestCheckpoint one_rank() { return {{counting_tensor("w", {4, 3}, {{0, kWhole}})}, {{"step", Value(int64_t{7})}}, {}}; }

struct Outcome {
  bool equal;
  std::string out;
};

Outcome diff(const TemporaryFolder& folder, const TestCheckpoint& a, const TestCheckpoint& b,
             DiffFormat format = DiffFormat::kText) {
  for (const char* name : {"a", "b"}) std::filesystem::remove_all(folder / name);
  write_checkpoint(folder / "a", a);
  write_checkpoint(folder / "b", b);
  std::ostringstream out;
  NoProgress quiet;
  const bool equal = diff_checkpoints(folder / "a", folder / "b", format, out, quiet);
  return {equal, out.str()};
}

/// The output without the two lines that name the directories.
std::string body(const Outcome& outcome) {
  const size_t first = outcome.out.find('\n');
  return outcome.out.substr(outcome.out.find('\n', first + 1) + 1);
}

TEST(Diff, EqualContents_AreEqualWhateverTheChunks) {
  const TemporaryFolder folder;
  TestCheckpoint other = one_rank();
  other.tensors[0].chunks = {{0, {{0, 0}, {4, 1}}}, {2, {{0, 1}, {1, 2}}}, {5, {{1, 1}, {3, 2}}}};
  other.save_id = "00000000000000bb";
  const Outcome outcome = diff(folder, one_rank(), other);
  EXPECT_TRUE(outcome.equal);
  EXPECT_EQ(outcome.out, str_cat("A: ", (folder / "a").string(), "\nB: ", (folder / "b").string(),
                                 "\nequal: compared 1 tensor, 48 B (48 bytes)\n"));
}

TEST(Diff, Nothing_IsEqual) {
  const TemporaryFolder folder;
  EXPECT_TRUE(diff(folder, {}, {}).equal);
}

TEST(Diff, Names_OnOneSideAlone_AreListed) {
  const TemporaryFolder folder;
  TestCheckpoint b = one_rank();
  b.tensors[0].name = "v\n";
  b.values[0].name = "epoch";
  const Outcome outcome = diff(folder, one_rank(), b);
  EXPECT_FALSE(outcome.equal);
  EXPECT_EQ(body(outcome),
            "epoch: value only in B\nstep: value only in A\nv\\x0a: tensor only in B\nw: tensor only in A\n"
            "4 differences; compared 0 tensors, 0 B (0 bytes)\n");
}

TEST(Diff, DTypeShapeValueAndKind_AreTold) {
  const TemporaryFolder folder;
  TestCheckpoint a{{counting_tensor("dtype", {2}, {{0, {{0}, {2}}}}), counting_tensor("shape", {2}, {{0, {{0}, {2}}}}),
                    counting_tensor("kind", {2}, {{0, {{0}, {2}}}})},
                   {{"value", Value(1.0)}},
                   {}};
  TestCheckpoint b = a;
  b.tensors[0].dtype = DType::kI32;
  b.tensors[1].shape = {1, 2};
  b.tensors[1].chunks = {{0, {{0, 0}, {1, 2}}}};
  b.tensors.pop_back();
  b.values = {{"kind", Value(true)}, {"value", Value(int64_t{1})}};
  const Outcome outcome = diff(folder, a, b);
  EXPECT_FALSE(outcome.equal);
  EXPECT_EQ(body(outcome),
            "dtype: dtype F32 in A, I32 in B\nkind: tensor in A, value in B\nshape: shape (2,) in A, (1, 2) in B\n"
            "value: value 1.0 in A, 1 in B\n4 differences; compared 0 tensors, 0 B (0 bytes)\n");
}

TEST(Diff, Contents_AreCountedWithTheLargestDifference) {
  const TemporaryFolder folder;
  TestCheckpoint b = one_rank();
  const float seven = 7.5;
  const float eleven = 9;
  b.tensors[0].bytes.replace(7 * 4, 4, std::string(reinterpret_cast<const char*>(&seven), 4));
  b.tensors[0].bytes.replace(11 * 4, 4, std::string(reinterpret_cast<const char*>(&eleven), 4));
  b.tensors[0].chunks = {{0, {{0, 0}, {4, 2}}}, {1, {{0, 2}, {4, 1}}}};
  EXPECT_EQ(body(diff(folder, one_rank(), b)),
            "w: 2 of 12 elements differ, the largest absolute difference is 2\n"
            "1 difference; compared 1 tensor, 48 B (48 bytes)\n");
}

TEST(Diff, NotANumber_IsCountedApart) {
  const TemporaryFolder folder;
  TestCheckpoint b = one_rank();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  b.tensors[0].bytes.replace(0, 4, std::string(reinterpret_cast<const char*>(&nan), 4));
  EXPECT_EQ(body(diff(folder, one_rank(), b)),
            "w: 1 of 12 elements differs, 1 by NaN or an infinity\n1 difference; compared 1 tensor, 48 B (48 bytes)\n");
}

TEST(Diff, Integers_HaveNoDistance) {
  const TemporaryFolder folder;
  const TestCheckpoint a{{{"i", DType::kI64, {3}, counting_bytes<int64_t>(3), {{0, {{0}, {3}}}}}}, {}, {}};
  TestCheckpoint b = a;
  b.tensors[0].bytes = counting_bytes<int64_t>(3, 1);
  EXPECT_EQ(body(diff(folder, a, b)), "i: 3 of 3 elements differ\n1 difference; compared 1 tensor, 24 B (24 bytes)\n");
}

TEST(Diff, Structure_CountsAsADifference) {
  const TemporaryFolder folder;
  TestCheckpoint b = one_rank();
  b.structure = Value(ValueDict{{{Value("step"), Value("step")}, {Value("w"), Value("w")}}});
  const Outcome outcome = diff(folder, one_rank(), b);
  EXPECT_FALSE(outcome.equal);
  EXPECT_EQ(body(outcome), "the entries are nested otherwise\n1 difference; compared 1 tensor, 48 B (48 bytes)\n");
}

TEST(Diff, LongValue_IsCutInTheText) {
  const TemporaryFolder folder;
  TestCheckpoint b = one_rank();
  b.values[0].value = Value(std::string(1000, 'x'));
  EXPECT_LT(diff(folder, one_rank(), b).out.size(), 1000U);
}

TEST(Diff, TensorLargerThanASlab_IsComparedToItsEnd) {
  const TemporaryFolder folder;
  constexpr int64_t kCells = 3'000'000;  // 12 MB, three slabs
  const auto make = [](int64_t changed) {
    TestTensor tensor{"w", DType::kU8, {kCells * 4}, std::string(kCells * 4, 'a'), {}};
    if (changed >= 0) tensor.bytes[static_cast<size_t>(changed)] = 'b';
    return tensor;
  };
  // Written without the support's cell by cell way, which is slow for so many.
  const auto write = [&](const char* name, int64_t changed) {
    const TestTensor tensor = make(changed);
    std::filesystem::create_directories(folder / name);
    const std::vector<DataChunk> chunks = {{"w", DType::kU8, tensor.shape}};
    DataFile file(folder / name / data_file_name("00000000000000aa", 0), chunks);
    file.append(std::as_bytes(std::span(tensor.bytes)));
    const WrittenFile written = file.finish();
    StoredTensor stored("w", DType::kU8, tensor.shape);
    stored.add_chunk({{0}, tensor.shape}, 0, written.chunks[0].begin, "", written.chunks[0].checksums);
    CheckpointParts parts;
    parts.save_id = "00000000000000aa";
    parts.files = {{data_file_name("00000000000000aa", 0), written.bytes}};
    parts.tensors = {stored};
    write_file(folder / name / ".metadata", write_metadata(CheckpointMetadata(std::move(parts))));
  };
  write("a", -1);
  write("b", kCells * 4 - 1);
  NoProgress quiet;
  const DiffReport report = diff_checkpoints(folder / "a", folder / "b", quiet);
  ASSERT_EQ(report.differences.size(), 1U);
  EXPECT_EQ(report.differences[0].contents.elements, 1);
  EXPECT_EQ(report.bytes, kCells * 4);
}

TEST(Diff, Json_SaysTheSame) {
  const TemporaryFolder folder;
  TestCheckpoint b = one_rank();
  const float infinity = std::numeric_limits<float>::infinity();
  b.tensors[0].bytes.replace(0, 4, std::string(reinterpret_cast<const char*>(&infinity), 4));
  b.values = {};
  const Json json = Json::parse(diff(folder, one_rank(), b, DiffFormat::kJson).out);
  EXPECT_EQ(json["a"], (folder / "a").string());
  EXPECT_EQ(json["b"], (folder / "b").string());
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["structures_differ"], false);
  EXPECT_EQ(json["tensors"], 1);
  EXPECT_EQ(json["bytes"], 48);
  EXPECT_EQ(json["differences"], Json::parse(R"([{"name": "step", "kind": "only_in_a", "a": "value"},
                            {"name": "w", "kind": "contents", "elements": 12, "differing": 1,
                             "max_abs_difference": "inf", "undefined": 0}])"));
}

TEST(Diff, JsonOfIntegers_HasANullDistance) {
  const TemporaryFolder folder;
  const TestCheckpoint a{{{"i", DType::kI64, {1}, counting_bytes<int64_t>(1), {{0, {{0}, {1}}}}}}, {}, {}};
  TestCheckpoint b = a;
  b.tensors[0].bytes = counting_bytes<int64_t>(1, 1);
  const Json json = Json::parse(diff(folder, a, b, DiffFormat::kJson).out);
  EXPECT_EQ(json["differences"][0]["max_abs_difference"], Json());
  EXPECT_FALSE(json["differences"][0].contains("undefined"));
}

TEST(Diff, DamagedOrMissingSide_IsRefused) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "a", one_rank());
  write_checkpoint(folder / "b", one_rank());
  NoProgress quiet;
  damage_byte(folder / "b" / metadata.files()[0].name, metadata.files()[0].bytes - 1);
  expect_error(ErrorCode::kDataLoss, "block 0 of tensor 'w'",
               [&] { diff_checkpoints(folder / "a", folder / "b", quiet); });
  expect_error(ErrorCode::kInvalidArgument, "No such file or directory",
               [&] { diff_checkpoints(folder / "a", folder / "none", quiet); });
}

}  // namespace
}  // namespace hyper_parallel
