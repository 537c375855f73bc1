#include "hyper_parallel/checkpoint/save_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "tests/support/expect_error.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<std::string>;

const std::string kA = "aaaaaaaaaaaaaaaa";
const std::string kB = "bbbbbbbbbbbbbbbb";

TEST(SaveLock, SecondSaver_IsRefusedUntilTheFirstIsDone) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  std::optional<SaveLock> first(directory);
  expect_error(
      ErrorCode::kFailedPrecondition,
      "cannot save into '" + folder.path().string() + "': another save is running there and holds '.save.lock'",
      [&] { SaveLock second(directory); });
  first.reset();
  const SaveLock third(directory);
  EXPECT_TRUE(std::filesystem::exists(folder / ".save.lock"));
}

TEST(SaveLock, ChildForkedMeanwhile_DoesNotKeepTheLock) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  std::optional<SaveLock> lock(directory);
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(pipe[1]);
    ::_exit(::read(pipe[0], &byte, 1) == 0 ? 0 : 1);
  }
  lock.reset();
  EXPECT_NO_THROW(SaveLock{directory});
  ::close(pipe[1]);
  ::close(pipe[0]);
  ::waitpid(child, nullptr, 0);
}

TEST(SaveLock, ChildThatRunsDestructors_LeavesTheLockToItsParent) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  std::optional<SaveLock> lock(directory);
  EXPECT_TRUE(lock->is_ours());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_ours = lock->is_ours();
    lock.reset();
    ::_exit(is_ours ? 1 : 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  expect_error(ErrorCode::kFailedPrecondition, "another save is running there", [&] { SaveLock second(directory); });
  lock.reset();
  EXPECT_NO_THROW(SaveLock{directory});
}

TEST(SaveLock, Journal_KeepsIdsUntilItIsCleared) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  {
    SaveLock lock(directory);
    EXPECT_THAT(lock.ids(), IsEmpty());
    lock.add(Ids{kA});
    lock.add(Ids{kB, kA});
  }
  EXPECT_EQ(read_file(folder / ".save.lock"), kA + "\n" + kB + "\n" + kA + "\n");
  {
    SaveLock lock(directory);
    EXPECT_THAT(lock.ids(), ElementsAre(kA, kB, kA));
    EXPECT_TRUE(lock.clear());
    lock.add(Ids{kB});
    EXPECT_THAT(lock.ids(), ElementsAre(kB));
  }
  EXPECT_EQ(read_file(folder / ".save.lock"), kB + "\n");
}

TEST(SaveLock, LineWrittenInPart_CountsForNothingAndSpoilsNoOther) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  for (const std::string& torn : {std::string("bbbb"), std::string("\0\0\0", 3), "b" + std::string(20, '\0')}) {
    write_file(folder / ".save.lock", kA + "\n" + torn);
    {
      SaveLock lock(directory);
      EXPECT_THAT(lock.ids(), ElementsAre(kA));
      lock.add(Ids{kB});
    }
    EXPECT_THAT(SaveLock(directory).ids(), ElementsAre(kA, kB));
  }
}

TEST(SaveLock, FileOfSomebodyElse_IsRefusedAndKept) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  for (const std::string& text : {std::string("hello\n"), kA + "b\n", std::string(size_t{2} << 20, '\n')}) {
    write_file(folder / ".save.lock", text);
    expect_error(ErrorCode::kFailedPrecondition, ".save.lock' is not a list of save ids",
                 [&] { SaveLock lock(directory); });
    EXPECT_EQ(read_file(folder / ".save.lock"), text);
  }
}

TEST(SaveLock, SymbolicLinkPipeOrDirectory_IsRefused) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  std::filesystem::create_symlink("elsewhere", folder / ".save.lock");
  expect_error(ErrorCode::kDataLoss, ".save.lock' is a symbolic link", [&] { SaveLock lock(directory); });
  EXPECT_FALSE(std::filesystem::exists(folder / "elsewhere"));
  std::filesystem::remove(folder / ".save.lock");
  ASSERT_EQ(::mkfifo((folder / ".save.lock").c_str(), 0600), 0);
  expect_error(ErrorCode::kDataLoss, ".save.lock' is no regular file", [&] { SaveLock lock(directory); });
  std::filesystem::remove(folder / ".save.lock");
  std::filesystem::create_directory(folder / ".save.lock");
  expect_error(ErrorCode::kDataLoss, ".save.lock' is no regular file", [&] { SaveLock lock(directory); });
}

TEST(SaveLock, DiskThatTakesNoMore_IsDataLoss) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  SaveLock lock(directory);
  const FileSizeLimit limit(5);
  expect_error(ErrorCode::kDataLoss, "cannot write '" + (folder / ".save.lock").string() + "': File too large",
               [&] { lock.add(Ids{kA}); });
}

}  // namespace
}  // namespace hyper_parallel
