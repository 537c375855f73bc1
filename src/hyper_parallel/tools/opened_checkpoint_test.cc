#include "hyper_parallel/tools/opened_checkpoint.h"

#include <sys/resource.h>

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "hyper_parallel/tools/checkpoint_source.h"
#include "hyper_parallel/tools/verify_command.h"
#include "tests/support/expect_error.h"
#include "tests/support/stored_checkpoint.h"

namespace hyper_parallel {
namespace {

/// The number-th save of 'w', whose cells count from the number on.
TestCheckpoint numbered_save(int number) {
  TestTensor w = counting_tensor("w", {4}, {{0, {{0}, {2}}}, {1, {{2}, {2}}}});
  w.bytes = counting_bytes<float>(4, static_cast<float>(number));
  return {{std::move(w)}, {}, {}, str_cat("00000000000000a", number)};
}

/// Publishes a save and removes the files of the one before, as a saver does.
void replace_checkpoint(const std::filesystem::path& directory, int number) {
  const CheckpointMetadata old = metadata_of(directory);
  write_checkpoint(directory, numbered_save(number));
  for (const StoredFile& file : old.files()) std::filesystem::remove(directory / file.name);
}

/// Reads `.metadata`; after each of the first `replacements` readings the next save replaces the checkpoint.
OpenedCheckpoint::ReadText replaced_after_reading(const std::filesystem::path& path, int replacements) {
  return [path, replacements, number = 0](const Directory& directory) mutable {
    std::optional<std::string> text = read_metadata_file(directory);
    if (number < replacements) replace_checkpoint(path, ++number);
    return text;
  };
}

OpenedCheckpoint opened_beside_a_saver(const std::filesystem::path& path, int replacements) {
  write_checkpoint(path, numbered_save(0));
  return OpenedCheckpoint(path, replaced_after_reading(path, replacements));
}

/// Lowers the limit of open files while it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t files) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit lower{files, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(OpenedCheckpoint, ReplacedBetweenReadingAndOpening_IsTheNewOne) {
  const TemporaryFolder folder;
  const OpenedCheckpoint opened = opened_beside_a_saver(folder / "c", 1);
  EXPECT_EQ(opened.metadata().save_id(), "00000000000000a1");
  for (int64_t file = 0; file < 2; ++file) EXPECT_TRUE(opened.open(file).has_value());
}

TEST(OpenedCheckpoint, ReplacedFiveTimes_IsTheLast_MoreOftenIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(opened_beside_a_saver(folder / "five", 5).metadata().save_id(), "00000000000000a5");
  expect_error(ErrorCode::kFailedPrecondition,
               "was replaced by a newer save more than 5 times while it was being opened",
               [&] { opened_beside_a_saver(folder / "six", 6); });
}

TEST(OpenedCheckpoint, ReplacedAfterOpening_StaysWhatItWas) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "c", numbered_save(0));
  OpenedCheckpoint for_reading(folder / "c");
  OpenedCheckpoint for_verifying(folder / "c");
  replace_checkpoint(folder / "c", 1);
  CheckpointSource source(std::move(for_reading));
  std::string bytes(16, '\0');
  source.read(*source.metadata().find_tensor("w"), {0, 4}, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, counting_bytes<float>(4, 0));
  NoProgress quiet;
  const VerifyReport report = verify_checkpoint(std::move(for_verifying), quiet);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.save_id, "00000000000000a0");
  EXPECT_EQ(report.blocks, 2);
}

TEST(OpenedCheckpoint, MissingFileOfTheSameSave_IsStillMissing_AndTheOthersAreOpen) {
  const TemporaryFolder folder;
  const CheckpointMetadata metadata = write_checkpoint(folder / "c", numbered_save(0));
  std::filesystem::remove(folder / "c" / metadata.files()[0].name);
  const OpenedCheckpoint opened(folder / "c");
  EXPECT_FALSE(opened.open(0).has_value());
  EXPECT_TRUE(opened.open(1).has_value());
  EXPECT_NO_THROW(opened.check_not_replaced(0));
}

TEST(OpenedCheckpoint, FileNotKeptOpen_OfAReplacedCheckpoint_IsToldAsReplaced) {
  const TemporaryFolder folder;
  TestCheckpoint wide{{counting_tensor("w", {30}, {})}, {}, {}, "00000000000000a0"};
  for (int64_t rank = 0; rank < 30; ++rank) wide.tensors[0].chunks.push_back({rank, {{rank}, {1}}});
  write_checkpoint(folder / "c", wide);
  const FileLimit twenty_kept_open(60);
  CheckpointSource source(folder / "c");
  OpenedCheckpoint opened(folder / "c");
  replace_checkpoint(folder / "c", 1);
  std::string bytes(4, '\0');
  const auto read = [&](int64_t cell) {
    source.read(*source.metadata().find_tensor("w"), {cell, cell + 1}, std::as_writable_bytes(std::span(bytes)));
  };
  read(19);
  EXPECT_EQ(bytes, counting_bytes<float>(1, 19));
  const std::string replaced = "-00020.safetensors' is gone: a newer save replaced the checkpoint";
  expect_error(ErrorCode::kFailedPrecondition, replaced, [&] { read(20); });
  NoProgress quiet;
  expect_error(ErrorCode::kFailedPrecondition, replaced, [&] { verify_checkpoint(std::move(opened), quiet); });
}

}  // namespace
}  // namespace hyper_parallel
