#include "hyper_parallel/checkpoint/file_system_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "tests/support/buffer_planners.h"
#include "tests/support/expect_error.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Names = std::set<std::string>;

// "w", two rows of three bytes.
BufferSavePlanner planner_of(const std::string& bytes) {
  BufferSavePlanner planner;
  planner.add({"w", DType::kU8, {2, 3}, {whole_box({2, 3})}}, bytes);
  return planner;
}

CheckpointParts write_share(FileSystemWriter& writer, const std::string& id, BufferSavePlanner& planner) {
  NoProgress progress;
  return writer.write(id, 0, planner.plan, planner, progress);
}

// A whole save of one rank. Returns its id.
std::string save(const std::filesystem::path& directory, const std::string& bytes) {
  FileSystemWriter writer(directory);
  BufferSavePlanner planner = planner_of(bytes);
  const std::string id = writer.begin();
  writer.publish(CheckpointMetadata(write_share(writer, id, planner)));
  return id;
}

CheckpointMetadata published(const std::filesystem::path& directory) {
  return parse_metadata(bytes_of(read_file(directory / ".metadata")), ".metadata");
}

// A save that dies after its share is written: what is on the disk then, put back behind its destructor.
std::string die_after_write(const TemporaryFolder& folder, const std::string& bytes) {
  std::string id;
  std::string data;
  {
    FileSystemWriter writer(folder.path());
    BufferSavePlanner planner = planner_of(bytes);
    id = writer.begin();
    write_share(writer, id, planner);
    data = read_file(folder / data_file_name(id, 0));
  }
  write_file(folder / data_file_name(id, 0), data);
  write_file(folder / (".metadata.tmp-" + id), "half");
  return id;
}

TEST(FileSystemWriter, Publish_LeavesDataMetadataAndAnEmptyJournal) {
  const TemporaryFolder folder;
  const std::string id = save(folder / "new", "abcdef");
  EXPECT_EQ(read_file(folder / "new" / ".save.lock"), "");
  const CheckpointMetadata metadata = published(folder / "new");
  EXPECT_EQ(metadata.save_id(), id);
  ASSERT_EQ(metadata.files().size(), 1U);
  EXPECT_EQ(metadata.files()[0].name, data_file_name(id, 0));
  const StoredChunk chunk = metadata.tensors().at(0).chunk(0);
  EXPECT_EQ(chunk.key, "w");
  EXPECT_THAT(chunk.checksums, ElementsAre(crc32c(bytes_of("abcdef"))));
  const std::string file = read_file(folder / "new" / metadata.files()[0].name);
  EXPECT_EQ(file.substr(static_cast<size_t>(chunk.begin), 6), "abcdef");
  EXPECT_EQ(static_cast<int64_t>(file.size()), metadata.files()[0].bytes);
}

TEST(FileSystemWriter, NextSave_ReplacesTheFilesOfTheOneBeforeAndNoOthers) {
  const TemporaryFolder folder;
  save(folder.path(), "abcdef");
  write_file(folder / "notes.txt", "mine");
  write_file(folder / "data-short.safetensors", "mine");
  write_file(folder / "data-0123456789abcdef-00000.safetensors", "another program's");
  std::filesystem::create_directory(folder / "sub");
  const std::string id = save(folder.path(), "ghijkl");
  EXPECT_EQ(folder.names(), (Names{".metadata", ".save.lock", data_file_name(id, 0), "notes.txt",
                                   "data-short.safetensors", "data-0123456789abcdef-00000.safetensors", "sub"}));
  EXPECT_EQ(published(folder.path()).save_id(), id);
}

TEST(FileSystemWriter, SeveralBoxesOfATensor_GetKeysOfTheirOwn) {
  const TemporaryFolder folder;
  FileSystemWriter writer(folder.path());
  BufferSavePlanner planner;
  planner.add({"w", DType::kU8, {3, 2}, {{{0, 1}, {1, 1}}, {{1, 0}, {2, 2}}}}, "bcdef");
  planner.add({"w.__dcp_chunk_0", DType::kI16, {1}, {whole_box({1})}}, "xy");
  planner.add({"empty", DType::kU8, {0}, {}}, "");
  const std::string id = writer.begin();
  const CheckpointParts parts = write_share(writer, id, planner);
  EXPECT_EQ(parts.save_id, id);
  ASSERT_EQ(parts.tensors.size(), 2U);
  EXPECT_EQ(parts.tensors[0].chunk(0).key, "w.__dcp_chunk_1");
  EXPECT_EQ(parts.tensors[0].chunk(1).key, "w.__dcp_chunk_2");
  EXPECT_EQ(parts.tensors[1].chunk(0).key, "w.__dcp_chunk_0");
  const SafetensorsFile file(folder / parts.files.at(0).name);
  EXPECT_EQ(text_of(file.bytes("w.__dcp_chunk_1")), "b");
  EXPECT_EQ(text_of(file.bytes("w.__dcp_chunk_2")), "cdef");
  EXPECT_EQ(text_of(file.bytes("w.__dcp_chunk_0")), "xy");
}

TEST(FileSystemWriter, RankWithoutBoxes_WritesNoFile) {
  const TemporaryFolder folder;
  FileSystemWriter writer(folder.path());
  const std::string id = writer.begin();
  BufferSavePlanner planner;
  planner.add({"w", DType::kU8, {0}, {}}, "");
  const CheckpointParts parts = write_share(writer, id, planner);
  EXPECT_THAT(parts.files, IsEmpty());
  EXPECT_THAT(parts.tensors, IsEmpty());
  writer.publish(CheckpointMetadata(parts));
  EXPECT_EQ(folder.names(), (Names{".metadata", ".save.lock"}));
}

TEST(FileSystemWriter, Progress_IsToldOfEveryBlock) {
  struct Log final : Progress {
    void start(int64_t total) override { steps.push_back(-total); }
    void advance(int64_t bytes) override { steps.push_back(bytes); }
    void finish() override { steps.push_back(0); }
    std::vector<int64_t> steps;
  } log;
  const TemporaryFolder folder;
  FileSystemWriter writer(folder.path());
  BufferSavePlanner planner;
  planner.add({"w", DType::kU8, {kBlockBytes + 7}, {whole_box({kBlockBytes + 7})}},
              std::string(static_cast<size_t>(kBlockBytes + 7), 'x'));
  writer.write(writer.begin(), 0, planner.plan, planner, log);
  EXPECT_THAT(log.steps, ElementsAre(-(kBlockBytes + 7), kBlockBytes, 7, 0));
}

TEST(FileSystemWriter, SecondSaver_IsRefusedWhileTheFirstIsAtIt) {
  const TemporaryFolder folder;
  FileSystemWriter first(folder.path());
  first.begin();
  FileSystemWriter second(folder.path());
  expect_error(ErrorCode::kFailedPrecondition, "another save is running there", [&] { second.begin(); });
  expect_error(ErrorCode::kFailedPrecondition, "this writer has begun one", [&] { first.begin(); });
  first.abandon();
  EXPECT_NO_THROW(second.begin());
}

TEST(FileSystemWriter, AbandonOrDestruction_RemovesThisSaveAlone) {
  const TemporaryFolder folder;
  const std::string old = save(folder.path(), "abcdef");
  const Names before = folder.names();
  BufferSavePlanner planner = planner_of("ghijkl");
  FileSystemWriter writer(folder.path());
  write_share(writer, writer.begin(), planner);
  EXPECT_EQ(folder.names().size(), before.size() + 1);
  writer.abandon();
  EXPECT_EQ(folder.names(), before);
  {
    FileSystemWriter other(folder.path());
    write_share(other, other.begin(), planner);
  }
  EXPECT_EQ(folder.names(), before);
  EXPECT_EQ(published(folder.path()).save_id(), old);
  writer.abandon();  // nothing is begun: no effect
  expect_error(ErrorCode::kFailedPrecondition, "no save was begun", [&] { writer.publish(CheckpointMetadata()); });
}

TEST(FileSystemWriter, DeadSaves_AreTidiedByTheNext) {
  const TemporaryFolder folder;
  const std::string old = save(folder.path(), "abcdef");
  const std::string dead = die_after_write(folder, "ghijkl");
  const std::string dead_too = die_after_write(folder, "mnopqr");
  EXPECT_FALSE(std::filesystem::exists(folder / data_file_name(dead, 0)));
  EXPECT_TRUE(std::filesystem::exists(folder / data_file_name(dead_too, 0)));
  {
    FileSystemWriter writer(folder.path());
    writer.begin();
    EXPECT_EQ(folder.names(), (Names{".metadata", ".save.lock", data_file_name(old, 0)}));
  }
  const std::string id = save(folder.path(), "stuvwx");
  EXPECT_EQ(folder.names(), (Names{".metadata", ".save.lock", data_file_name(id, 0)}));
  EXPECT_EQ(read_file(folder / ".save.lock"), "");
}

TEST(FileSystemWriter, SaveThatDiedBehindTheRename_IsKeptAndWhatItReplacedGoes) {
  const TemporaryFolder folder;
  const std::string old = save(folder.path(), "abcdef");
  const std::string data = read_file(folder / data_file_name(old, 0));
  const std::string id = save(folder.path(), "ghijkl");
  write_file(folder / data_file_name(old, 0), data);
  write_file(folder / ".save.lock", id + "\n" + old + "\n");
  {
    FileSystemWriter writer(folder.path());
    writer.begin();
    EXPECT_EQ(folder.names(), (Names{".metadata", ".save.lock", data_file_name(id, 0)}));
  }
  EXPECT_EQ(published(folder.path()).save_id(), id);
}

TEST(FileSystemWriter, OldFileThatCannotBeRemoved_IsNoFaultAndStaysInTheJournal) {
  const TemporaryFolder folder;
  const std::string old = save(folder.path(), "abcdef");
  std::filesystem::remove(folder / data_file_name(old, 0));
  std::filesystem::create_directory(folder / data_file_name(old, 0));  // not for unlink, whoever we are
  const std::string id = save(folder.path(), "ghijkl");
  EXPECT_EQ(published(folder.path()).save_id(), id);
  EXPECT_EQ(read_file(folder / ".save.lock"), id + "\n" + old + "\n");
  std::filesystem::remove(folder / data_file_name(old, 0));
  write_file(folder / data_file_name(old, 0), "removable again");
  const std::string last = save(folder.path(), "mnopqr");
  EXPECT_EQ(folder.names(), (Names{".metadata", ".save.lock", data_file_name(last, 0)}));
  EXPECT_EQ(read_file(folder / ".save.lock"), "");
}

TEST(FileSystemWriter, MetadataOfAnotherProgramOrUnreadable_IsRefusedAndNothingChanges) {
  for (const std::string& text : {std::string("\x80\x02pickle"), std::string(""),
                                  std::string("{\"format\": \"hyper_parallel.checkpoint\", \"version\": 99}")}) {
    const TemporaryFolder folder;
    write_file(folder / ".metadata", text);
    FileSystemWriter writer(folder.path());
    expect_error(ErrorCode::kFailedPrecondition, "cannot save over '" + (folder / ".metadata").string() + "'",
                 [&] { writer.begin(); });
    EXPECT_EQ(folder.names(), Names{".metadata"});
    EXPECT_EQ(read_file(folder / ".metadata"), text);
  }
}

TEST(FileSystemWriter, MetadataThatIsASymbolicLink_IsRefused) {
  const TemporaryFolder folder;
  save(folder / "a", "abcdef");
  std::filesystem::create_directory(folder / "b");
  std::filesystem::create_symlink(folder / "a" / ".metadata", folder / "b" / ".metadata");
  FileSystemWriter writer(folder / "b");
  expect_error(ErrorCode::kFailedPrecondition, "is a symbolic link", [&] { writer.begin(); });
}

TEST(FileSystemWriter, PathThatCannotBeADirectory_IsRefused) {
  const TemporaryFolder folder;
  write_file(folder / "f", "x");
  expect_error(ErrorCode::kInvalidArgument,
               "cannot create directory '" + (folder / "a/b").string() + "': its parent does not exist",
               [&] { FileSystemWriter(folder / "a/b").begin(); });
  expect_error(ErrorCode::kInvalidArgument, "Not a directory", [&] { FileSystemWriter(folder / "f").begin(); });
  expect_error(ErrorCode::kInvalidArgument, "Not a directory", [&] { FileSystemWriter(folder / "f/x").begin(); });
  expect_error(ErrorCode::kInvalidArgument, "does not exist", [&] { FileSystemWriter("").begin(); });
}

TEST(FileSystemWriter, DataFileThatIsNotThereInFull_IsNotPublished) {
  const TemporaryFolder folder;
  const std::string old = save(folder.path(), "abcdef");
  FileSystemWriter writer(folder.path());
  BufferSavePlanner planner = planner_of("ghijkl");
  const CheckpointParts parts = write_share(writer, writer.begin(), planner);
  const std::filesystem::path data = folder / parts.files[0].name;
  std::filesystem::resize_file(data, static_cast<uintmax_t>(parts.files[0].bytes - 1));
  expect_error(ErrorCode::kDataLoss, "bytes, but " + std::to_string(parts.files[0].bytes) + " were written",
               [&] { writer.publish(CheckpointMetadata(parts)); });
  EXPECT_FALSE(std::filesystem::exists(data)) << "publish cleans up after itself";
  const CheckpointParts more = write_share(writer, writer.begin(), planner);
  std::filesystem::remove(folder / more.files[0].name);
  expect_error(ErrorCode::kDataLoss, "is not there: do all ranks share the directory?",
               [&] { writer.publish(CheckpointMetadata(more)); });
  EXPECT_EQ(published(folder.path()).save_id(), old);
}

TEST(FileSystemWriter, MetadataOfAnotherSave_IsNotPublished) {
  const TemporaryFolder folder;
  FileSystemWriter writer(folder.path());
  writer.begin();
  CheckpointParts parts;
  parts.save_id = "0123456789abcdef";
  expect_error(ErrorCode::kInvalidArgument, "metadata has save_id '0123456789abcdef', but the save that was begun is",
               [&] { writer.publish(CheckpointMetadata(parts)); });
}

TEST(FileSystemWriter, DiskThatTakesNoMore_IsDataLossAndTheOldCheckpointStays) {
  const TemporaryFolder folder;
  const std::string old = save(folder.path(), "abcdef");
  const Names before = folder.names();
  FileSystemWriter writer(folder.path());
  BufferSavePlanner planner = planner_of("ghijkl");
  const std::string id = writer.begin();
  const CheckpointParts parts = write_share(writer, id, planner);
  {
    const FileSizeLimit limit(100);
    expect_error(ErrorCode::kDataLoss, ".metadata': File too large",
                 [&] { writer.publish(CheckpointMetadata(parts)); });
  }
  EXPECT_EQ(folder.names(), before);
  EXPECT_EQ(published(folder.path()).save_id(), old);
  expect_error(ErrorCode::kFailedPrecondition, "no save was begun", [&] { writer.publish(CheckpointMetadata(parts)); });
  EXPECT_NO_THROW(FileSystemWriter(folder.path()).begin()) << "the lock is let go";
}

TEST(FileSystemWriter, Abandon_BehindPublishRemovesNothing) {
  const TemporaryFolder folder;
  FileSystemWriter writer(folder.path());
  BufferSavePlanner planner = planner_of("abcdef");
  const std::string id = writer.begin();
  writer.publish(CheckpointMetadata(write_share(writer, id, planner)));
  writer.abandon();
  EXPECT_EQ(folder.names(), (Names{".metadata", ".save.lock", data_file_name(id, 0)}));
}

TEST(FileSystemWriter, ChildThatRunsDestructors_LeavesTheSaveToItsParent) {
  const TemporaryFolder folder;
  auto writer = std::make_unique<FileSystemWriter>(folder.path());
  BufferSavePlanner planner = planner_of("abcdef");
  const std::string id = writer->begin();
  const CheckpointParts parts = write_share(*writer, id, planner);
  const pid_t child = ::fork();
  if (child == 0) {
    writer.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / data_file_name(id, 0)));
  FileSystemWriter other(folder.path());
  expect_error(ErrorCode::kFailedPrecondition, "another save is running", [&] { other.begin(); });
  writer->publish(CheckpointMetadata(parts));
  EXPECT_EQ(published(folder.path()).save_id(), id);
}

TEST(FileSystemWriter, PlannerThatGivesTheWrongBytes_IsRefused) {
  const TemporaryFolder folder;
  FileSystemWriter writer(folder.path());
  const SavePlan plan = planner_of("abcdef").plan;
  struct Short final : SavePlanner {
    SavePlan build_local_plan() override { return {}; }
    HeldBytes get_data(const WriteItem&) override { return {bytes_of("abc"), nullptr}; }
  } short_planner;
  NoProgress progress;
  const std::string id = writer.begin();
  expect_error(ErrorCode::kInvalidArgument, "get_data of tensor 'w' gave 3 bytes, but box (0, 0)+(2, 3) of U8 takes 6",
               [&] { writer.write(id, 0, plan, short_planner, progress); });
  expect_error(ErrorCode::kInvalidArgument, "save_id is '../x', but must be 16 lower-case hex digits",
               [&] { writer.write("../x", 0, plan, short_planner, progress); });
  EXPECT_EQ(folder.names(), Names{".save.lock"});
}

TEST(FileSystemWriter, DirectoryReplacedMeanwhile_LeavesTheOneThatTookItsPlaceAlone) {
  const TemporaryFolder folder;
  FileSystemWriter writer(folder / "d");
  BufferSavePlanner planner = planner_of("abcdef");
  const std::string id = writer.begin();
  const CheckpointMetadata metadata(write_share(writer, id, planner));
  std::filesystem::rename(folder / "d", folder / "away");
  const std::string other = save(folder / "d", "uvwxyz");
  expect_error(ErrorCode::kFailedPrecondition, "is no longer the directory that the save began in",
               [&] { writer.publish(metadata); });
  EXPECT_EQ(published(folder / "d").save_id(), other);
}

TEST(FileSystemWriter, FolderOfTheProcessChangedMeanwhile_StaysAtItsPlace) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a");
  std::filesystem::create_directory(folder / "b");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "a");
  FileSystemWriter writer("latest");
  BufferSavePlanner planner = planner_of("abcdef");
  const std::string id = writer.begin();
  std::filesystem::current_path(folder / "b");
  writer.publish(CheckpointMetadata(write_share(writer, id, planner)));
  std::filesystem::current_path(before);
  EXPECT_EQ(published(folder / "a" / "latest").save_id(), id);
  EXPECT_FALSE(std::filesystem::exists(folder / "b" / "latest"));
}

}  // namespace
}  // namespace hyper_parallel
