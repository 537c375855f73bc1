#include "hyper_parallel/tools/checkpoint_source.h"

#include <string>

#include "tests/support/expect_error.h"
#include "tests/support/stored_checkpoint.h"

namespace hyper_parallel {
namespace {

TestCheckpoint two_columns() {
  return {{counting_tensor("w", {3, 4}, {{0, {{0, 0}, {3, 1}}}, {1, {{0, 1}, {3, 3}}}})}, {}, {}};
}

std::string read_cells(CheckpointSource& source, const std::string& name, Interval cells) {
  const StoredTensor& tensor = *source.metadata().find_tensor(name);
  std::string bytes(static_cast<size_t>(cell_bytes(tensor.dtype(), cells.size())), '\0');
  source.read(tensor, cells, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST(CheckpointSource, Read_EveryRun_IsPutTogetherFromItsChunks) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", two_columns());
  CheckpointSource source(folder / "c");
  for (int64_t begin = 0; begin <= 12; ++begin) {
    for (int64_t end = begin; end <= 12; ++end) {
      EXPECT_EQ(read_cells(source, "w", {begin, end}), counting_bytes<float>(end - begin, static_cast<float>(begin)));
    }
  }
}

TEST(CheckpointSource, Read_ReplacedCheckpoint_IsReadToTheEnd) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", two_columns());
  CheckpointSource source(folder / "c");
  std::filesystem::remove_all(folder / "c");
  EXPECT_EQ(read_cells(source, "w", {0, 12}), counting_bytes<float>(12));
}

TEST(CheckpointSource, Read_DamagedBlock_IsRefused) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", two_columns());
  damage_byte(folder / "c" / metadata.files()[1].name, metadata.files()[1].bytes - 1);
  CheckpointSource source(folder / "c");
  expect_error(ErrorCode::kDataLoss, "block 0 of tensor 'w'", [&] { read_cells(source, "w", {0, 12}); });
  EXPECT_EQ(read_cells(source, "w", {4, 5}), counting_bytes<float>(1, 4));
}

TEST(CheckpointSource, Open_FaultsOfTheDirectory_AreTold) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::kInvalidArgument, "No such file or directory", [&] { CheckpointSource(folder / "none"); });
  expect_error(ErrorCode::kInvalidArgument, "there is no checkpoint in '", [&] { CheckpointSource(folder.path()); });
  write_file(folder / ".metadata", "{}");
  expect_error(ErrorCode::kDataLoss, ".metadata'", [&] { CheckpointSource(folder.path()); });
}

TEST(CheckpointSource, Open_FaultsOfAFile_AreTold) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", two_columns());
  const std::filesystem::path file = folder / "c" / metadata.files()[0].name;
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  expect_error(ErrorCode::kDataLoss, " bytes but the metadata says ", [&] { CheckpointSource(folder / "c"); });
  std::filesystem::rename(file, folder / "elsewhere");
  expect_error(ErrorCode::kDataLoss, "-00000.safetensors' is missing", [&] { CheckpointSource(folder / "c"); });
  std::filesystem::create_symlink(folder / "elsewhere", file);
  expect_error(ErrorCode::kDataLoss, " is a symbolic link", [&] { CheckpointSource(folder / "c"); });
}

TEST(SlabReader, Slabs_TileTheRunInOrder) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", {{counting_tensor("w", {100}, {{0, {{0}, {100}}}})}, {}, {}});
  CheckpointSource source(folder / "c");
  SlabReader slabs(source, 64);
  EXPECT_EQ(slabs.slab_cells(DType::kF32), 16);
  const StoredTensor& tensor = *source.metadata().find_tensor("w");
  std::string bytes;
  int64_t next = 3;
  slabs.stream(tensor, {3, 99}, [&](Interval cells, std::span<const std::byte> slab) {
    EXPECT_EQ(cells.begin, next);
    EXPECT_LE(cells.size(), 16);
    next = cells.end;
    bytes.append(reinterpret_cast<const char*>(slab.data()), slab.size());
  });
  EXPECT_EQ(next, 99);
  EXPECT_EQ(bytes, counting_bytes<float>(96, 3));
  slabs.stream(tensor, {7, 7}, [](Interval, std::span<const std::byte>) { FAIL() << "an empty run has no slab"; });
}

TEST(SlabReader, FaultOfTheUser_EndsTheStream) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", {{counting_tensor("w", {100}, {{0, {{0}, {100}}}})}, {}, {}});
  CheckpointSource source(folder / "c");
  SlabReader slabs(source, 64);
  expect_error(ErrorCode::kDataLoss, "disk full", [&] {
    slabs.stream(*source.metadata().find_tensor("w"), {0, 100},
                 [](Interval, std::span<const std::byte>) { raise(ErrorCode::kDataLoss, "disk full"); });
  });
}

TEST(SlabReader, CellsOfEveryWidth_FillWholeBytes) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", {{}, {}, {}});
  CheckpointSource source(folder / "c");
  const SlabReader slabs(source, 16);
  for (const DType dtype : all_dtypes()) {
    EXPECT_EQ(slabs.slab_cells(dtype) * bits_per_element(dtype) % 8, 0) << dtype;
    EXPECT_GT(slabs.slab_cells(dtype), 0) << dtype;
  }
}

}  // namespace
}  // namespace hyper_parallel
