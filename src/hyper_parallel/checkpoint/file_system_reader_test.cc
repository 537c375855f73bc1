#include "hyper_parallel/checkpoint/file_system_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/file_system_writer.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "tests/support/buffer_planners.h"
#include "tests/support/cells.h"
#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

std::string pattern(int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  uint64_t state = 88172645463325252ULL;
  for (char& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<char>(state);
  }
  return bytes;
}

// Saves "w" of `shape`, one byte a cell, cut into one chunk for each of `boxes`; one rank each where `ranks` says so.
enum class Ranks { kOne, kOnePerBox };
void save(const std::filesystem::path& directory, const Dims& shape, const std::vector<Box>& boxes,
          const std::string& cells, Ranks ranks = Ranks::kOne) {
  FileSystemWriter writer(directory);
  const std::string id = writer.begin();
  CheckpointParts all;
  all.save_id = id;
  all.tensors.emplace_back("w", DType::kU8, shape);
  BufferSavePlanner planner;
  const auto write = [&](int64_t rank) {
    NoProgress progress;
    const CheckpointParts parts = writer.write(id, rank, planner.plan, planner, progress);
    for (int64_t i = 0; i < parts.tensors[0].chunk_count(); ++i) {
      const StoredChunk chunk = parts.tensors[0].chunk(i);
      all.tensors[0].add_chunk(chunk.box, static_cast<int64_t>(all.files.size()), chunk.begin, chunk.key,
                               chunk.checksums);
    }
    all.files.insert(all.files.end(), parts.files.begin(), parts.files.end());
    planner = {};
  };
  for (const Box& box : boxes) {
    std::string bytes;
    for (const int64_t cell : cells_of(box, shape)) bytes += cells[static_cast<size_t>(cell)];
    if (planner.plan.tensors.empty()) planner.add({"w", DType::kU8, shape, {}}, "");
    planner.plan.tensors[0].boxes.push_back(box);
    planner.buffers[0] += bytes;
    if (ranks == Ranks::kOnePerBox) write(static_cast<int64_t>(all.files.size()));
  }
  if (ranks == Ranks::kOne) write(0);
  writer.publish(CheckpointMetadata(std::move(all)));
}

CheckpointMetadata metadata_of(FileSystemReader& reader) {
  return parse_metadata(bytes_of(reader.read_metadata()), "metadata");
}

// Loads the boxes of "w", each a target of its own.
std::vector<std::string> load(const std::filesystem::path& directory, const Dims& shape,
                              const std::vector<std::vector<Box>>& targets) {
  FileSystemReader reader(directory);
  const CheckpointMetadata metadata = metadata_of(reader);
  BufferLoadPlanner planner;
  for (const std::vector<Box>& boxes : targets) planner.add({"w", DType::kU8, shape, boxes});
  const LoadPlan plan = planner.build_local_plan(metadata);
  NoProgress progress;
  EXPECT_TRUE(reader.open(metadata, plan));
  reader.read(metadata, plan, planner, progress);
  return planner.buffers;
}

std::string cells_text(const std::vector<Box>& boxes, const Dims& shape, const std::string& cells) {
  std::string text;
  for (const Box& box : boxes) {
    for (const int64_t cell : cells_of(box, shape)) text += cells[static_cast<size_t>(cell)];
  }
  return text;
}

std::filesystem::path data_file_in(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") return entry.path();
  }
  return {};
}

void flip_byte(const std::filesystem::path& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}

TEST(FileSystemReader, AnyBoxes_AreReadFromAnyChunks) {
  const Dims shape{3, 4, 5};
  const std::string cells = pattern(60);
  const std::vector<std::vector<Box>> cuts{{whole_box(shape)},
                                           {{{0, 0, 0}, {3, 4, 2}}, {{0, 0, 2}, {3, 4, 3}}},
                                           {{{0, 0, 0}, {1, 4, 5}},
                                            {{1, 0, 0}, {1, 2, 5}},
                                            {{1, 2, 0}, {1, 1, 3}},
                                            {{1, 2, 3}, {1, 1, 2}},
                                            {{1, 3, 0}, {1, 1, 5}},
                                            {{2, 0, 0}, {1, 4, 5}}}};
  for (const std::vector<Box>& stored : cuts) {
    for (const Ranks ranks : {Ranks::kOne, Ranks::kOnePerBox}) {
      const TemporaryFolder folder;
      save(folder.path(), shape, stored, cells, ranks);
      for (const std::vector<Box>& wanted : cuts) {
        EXPECT_EQ(load(folder.path(), shape, {wanted})[0], cells_text(wanted, shape, cells));
        for (const Box& box : wanted) {
          EXPECT_EQ(load(folder.path(), shape, {{box}})[0], cells_text({box}, shape, cells));
        }
      }
    }
  }
}

// Blocks in place, blocks through the buffer, and blocks that several targets share, some of which read them in place.
TEST(FileSystemReader, ChunksOfManyBlocks_AreReadThroughColumnsRowsAndWhole) {
  const Dims shape{5, kBlockBytes / 2 + 3};
  const std::string cells = pattern(shape[0] * shape[1]);
  const TemporaryFolder folder;
  save(folder.path(), shape, {whole_box(shape)}, cells);
  const Box left{{0, 0}, {5, 1000}};
  const Box right{{0, 1000}, {5, shape[1] - 1000}};
  const Box below{{3, 0}, {2, shape[1]}};
  const std::vector<std::vector<Box>> targets{{left, right}, {whole_box(shape)}, {below}, {{{4, 7}, {1, 1}}}};
  const std::vector<std::string> loaded = load(folder.path(), shape, targets);
  for (size_t i = 0; i < targets.size(); ++i) EXPECT_EQ(loaded[i], cells_text(targets[i], shape, cells)) << i;
}

TEST(FileSystemReader, BlocksThatNoBoxTouches_AreNotRead) {
  const Dims shape{4, kBlockBytes};
  const std::string cells = pattern(4 * kBlockBytes);
  const TemporaryFolder folder;
  save(folder.path(), shape, {whole_box(shape)}, cells);
  const std::filesystem::path data = data_file_in(folder.path());
  const auto begin = static_cast<int64_t>(std::filesystem::file_size(data)) - 4 * kBlockBytes;
  flip_byte(data, begin + kBlockBytes + 17);
  const std::vector<Box> wanted{{{0, 5}, {1, 3}}, {{2, 0}, {2, 9}}};
  EXPECT_EQ(load(folder.path(), shape, {wanted})[0], cells_text(wanted, shape, cells));
  const std::string name = data.string();
  expect_error(ErrorCode::kDataLoss,
               "checkpoint file '" + name + "': block 1 of tensor 'w' (bytes [" + std::to_string(begin + kBlockBytes) +
                   ", " + std::to_string(begin + 2 * kBlockBytes) + ")) has checksum 0x",
               [&] { load(folder.path(), shape, {{{{1, 0}, {1, 1}}}}); });
  expect_error(ErrorCode::kDataLoss, " but the metadata says 0x",
               [&] { load(folder.path(), shape, {{whole_box(shape)}}); });
}

TEST(FileSystemReader, Progress_IsToldOfTheBytesDelivered) {
  struct Log final : Progress {
    void start(int64_t total) override { announced = total; }
    void advance(int64_t bytes) override { told += bytes; }
    void finish() override { ++finished; }
    int64_t announced = 0;
    int64_t told = 0;
    int finished = 0;
  } log;
  const TemporaryFolder folder;
  save(folder.path(), {2, 3}, {whole_box({2, 3})}, "abcdef");
  FileSystemReader reader(folder.path());
  const CheckpointMetadata metadata = metadata_of(reader);
  BufferLoadPlanner planner;
  planner.add({"w", DType::kU8, {2, 3}, {{{0, 1}, {2, 2}}}});
  planner.add({"w", DType::kU8, {2, 3}, {{{1, 0}, {1, 3}}}});
  const LoadPlan plan = planner.build_local_plan(metadata);
  reader.read(metadata, plan, planner, log);  // opens what it needs
  EXPECT_EQ(log.announced, 7);
  EXPECT_EQ(log.told, 7);
  EXPECT_EQ(log.finished, 1);
  EXPECT_EQ(planner.buffers[0], "bcef");
}

TEST(FileSystemReader, NoCheckpoint_IsInvalidArgument) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::kInvalidArgument,
               "there is no checkpoint in '" + folder.path().string() + "': it has no '.metadata'",
               [&] { FileSystemReader(folder.path()).read_metadata(); });
  expect_error(ErrorCode::kInvalidArgument, "No such file or directory",
               [&] { FileSystemReader(folder / "none").read_metadata(); });
}

TEST(FileSystemReader, MetadataThatIsNoRegularFileOrTooLarge_IsDataLoss) {
  const TemporaryFolder folder;
  FileSystemReader reader(folder.path());
  write_file(folder / "elsewhere", "{}");
  std::filesystem::create_symlink("elsewhere", folder / ".metadata");
  expect_error(ErrorCode::kDataLoss, ".metadata' is a symbolic link", [&] { reader.read_metadata(); });
  std::filesystem::remove(folder / ".metadata");
  write_file(folder / ".metadata", "");
  std::filesystem::resize_file(folder / ".metadata", kMaxMetadataBytes + 1);
  expect_error(ErrorCode::kDataLoss, "has 1073741825 bytes, more than the limit of 1073741824",
               [&] { reader.read_metadata(); });
}

class OneFile : public ::testing::Test {
 protected:
  OneFile() {
    save(folder.path(), {6}, {whole_box({6})}, "abcdef");
    data = data_file_in(folder.path());
    planner.add({"w", DType::kU8, {6}, {whole_box({6})}});
    metadata = metadata_of(reader);
    plan = planner.build_local_plan(metadata);
  }

  void read() {
    NoProgress progress;
    reader.read(metadata, plan, planner, progress);
  }

  TemporaryFolder folder;
  std::filesystem::path data;
  FileSystemReader reader{folder.path()};
  CheckpointMetadata metadata;
  BufferLoadPlanner planner;
  LoadPlan plan;
};

TEST_F(OneFile, RemovedBehindOpen_IsStillRead) {
  EXPECT_TRUE(reader.open(metadata, plan));
  std::filesystem::remove(data);
  read();
  EXPECT_EQ(planner.buffers[0], "abcdef");
}

TEST_F(OneFile, RemovedBeforeOpen_IsReportedAsGone) {
  std::filesystem::remove(data);
  EXPECT_FALSE(reader.open(metadata, plan));
  expect_error(ErrorCode::kDataLoss, "checkpoint file '" + data.string() + "': block 0 of tensor 'w' (bytes [",
               [&] { read(); });
  expect_error(ErrorCode::kDataLoss, ") is not there: the file is gone", [&] { read(); });
}

TEST_F(OneFile, NumberOfThreads_IsChecked) {
  for (const int threads : {0, -1, kMostReadThreads + 1}) {
    expect_error(ErrorCode::kInvalidArgument,
                 "threads is " + std::to_string(threads) + ", but must be 1 to " + std::to_string(kMostReadThreads),
                 [&] { FileSystemReader made(folder.path(), threads); });
  }
  EXPECT_NO_THROW(FileSystemReader(folder.path(), kMostReadThreads));
}

TEST_F(OneFile, SymbolicLink_IsRefused) {
  std::filesystem::rename(data, folder / "elsewhere");
  std::filesystem::create_symlink("elsewhere", data);
  expect_error(ErrorCode::kDataLoss, "is a symbolic link", [&] { reader.open(metadata, plan); });
}

TEST_F(OneFile, Pipe_IsRefusedWithoutWaiting) {
  std::filesystem::remove(data);
  ASSERT_EQ(::mkfifo(data.c_str(), 0600), 0);
  expect_error(ErrorCode::kDataLoss, "is no regular file", [&] { reader.open(metadata, plan); });
}

TEST_F(OneFile, AnotherSize_IsRefused) {
  const int64_t bytes = metadata.files()[0].bytes;
  std::filesystem::resize_file(data, static_cast<uintmax_t>(bytes - 1));
  expect_error(ErrorCode::kDataLoss,
               "checkpoint file '" + data.string() + "' has " + std::to_string(bytes - 1) +
                   " bytes but the metadata says " + std::to_string(bytes),
               [&] { reader.open(metadata, plan); });
}

TEST_F(OneFile, TruncatedBehindOpen_IsDataLoss) {
  EXPECT_TRUE(reader.open(metadata, plan));
  const int64_t bytes = metadata.files()[0].bytes;
  std::filesystem::resize_file(data, static_cast<uintmax_t>(bytes - 2));
  expect_error(ErrorCode::kDataLoss, "is not there: the file ends at byte " + std::to_string(bytes - 2),
               [&] { read(); });
}

TEST_F(OneFile, ItemThatDoesNotFitTheMetadata_IsRefused) {
  const ReadItem good = plan.items[0];
  plan.items[0].tensor = 1;
  expect_error(ErrorCode::kInvalidArgument, "a read item names tensor 1, but the metadata has 1", [&] { read(); });
  plan.items[0] = good;
  plan.items[0].chunk = -1;
  expect_error(ErrorCode::kInvalidArgument, "names chunk -1 of tensor 'w', which has 1", [&] { read(); });
  plan.items[0] = good;
  plan.items[0].overlap = {{3}, {4}};
  expect_error(ErrorCode::kInvalidArgument, "wants cells (3,)+(4,) of tensor 'w', which are not all in its chunk",
               [&] { reader.open(metadata, plan); });
}

TEST_F(OneFile, TargetWithoutRoom_IsRefused) {
  struct Small final : LoadPlanner {
    LoadPlan build_local_plan(const CheckpointMetadata&) override { return {}; }
    TargetView acquire_tensor(const LoadPlan&, const ReadItem&) override {
      return {std::as_writable_bytes(std::span(storage)), view, nullptr};
    }
    std::string storage = "12345";
    StridedView view;
  } small;
  NoProgress progress;
  for (const StridedView& view : {run_view(0, 6), run_view(0, 5), StridedView{4, {6}, {-1}}}) {
    small.view = view;
    expect_error(ErrorCode::kInvalidArgument,
                 "acquire_tensor for cells (0,)+(6,) of tensor 'w' gave the view " + to_string(view) +
                     " of a storage of 5 bytes",
                 [&] { reader.read(metadata, plan, small, progress); });
    EXPECT_EQ(small.storage, "12345");
  }
}

TEST(FileSystemReader, MoreFilesThanMayBeOpen_AreOpenedWhenTheyAreRead) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{40, before.rlim_max};
  const Dims shape{60};
  const std::string cells = pattern(60);
  std::vector<Box> boxes;
  for (int64_t i = 0; i < 60; ++i) boxes.push_back({{i}, {1}});
  const TemporaryFolder folder;
  save(folder.path(), shape, boxes, cells, Ranks::kOnePerBox);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::string loaded = load(folder.path(), shape, {{whole_box(shape)}})[0];
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(loaded, cells);
}

}  // namespace
}  // namespace hyper_parallel
