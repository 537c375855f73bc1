#include "hyper_parallel/checkpoint/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/support/expect_error.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

using Names = std::set<std::string>;

TEST(AtomicFile, Commit_PublishesAllBytesAndLeavesNothingElse) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "f");
  file.append(bytes_of("one "));
  file.append(bytes_of(""));
  file.append(bytes_of("two"));
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
  EXPECT_EQ(folder.names().size(), 1U);  // the temporary file lies in the same folder
  file.commit();
  EXPECT_EQ(read_file(folder / "f"), "one two");
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(AtomicFile, RelativePath_IsWrittenInTheCurrentFolder) {
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  AtomicFile file("f");
  file.append(bytes_of("x"));
  file.commit();
  std::filesystem::current_path(before);
  EXPECT_EQ(read_file(folder / "f"), "x");
}

TEST(AtomicFile, Mode_FollowsTheUmask) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(0027);
  AtomicFile file(folder / "f");
  file.commit();
  ::umask(before);
  struct stat status{};
  ASSERT_EQ(::stat((folder / "f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640U);
}

TEST(AtomicFile, NoCommit_LeavesTheTargetAndNoTemporaryFile) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.append(bytes_of("new"));
  }
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(AtomicFile, TwoWritersOfOneTarget_DoNotMix) {
  const TemporaryFolder folder;
  AtomicFile first(folder / "f");
  AtomicFile second(folder / "f");
  first.append(bytes_of("first"));
  second.append(bytes_of("second"));
  first.commit();
  EXPECT_EQ(read_file(folder / "f"), "first");
  second.commit();
  EXPECT_EQ(read_file(folder / "f"), "second");
}

TEST(AtomicFile, DiskThatTakesNoMore_IsDataLossAndLeavesTheTarget) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  AtomicFile file(folder / "f");
  {
    const FileSizeLimit limit(10);
    expect_error(ErrorCode::kDataLoss, "f': File too large", [&] { file.append(bytes_of("more than ten bytes")); });
  }
  EXPECT_EQ(folder.names(), Names{"f"});
  expect_error(ErrorCode::kFailedPrecondition, "f': it is no longer open", [&] { file.append(bytes_of("x")); });
  expect_error(ErrorCode::kFailedPrecondition, "f': it is no longer open", [&] { file.commit(); });
  EXPECT_EQ(read_file(folder / "f"), "old");
}

TEST(AtomicFile, TargetThatBecameADirectory_IsDataLoss) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "f");
  std::filesystem::create_directory(folder / "f");
  expect_error(ErrorCode::kDataLoss, "cannot rename the temporary file to '" + (folder / "f").string() + "'",
               [&] { file.commit(); });
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(AtomicFile, GivenSuffix_NamesTheTemporaryFileWhichMustBeFree) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "f", "0a");
  EXPECT_EQ(folder.names(), Names{"f.tmp-0a"});
  expect_error(ErrorCode::kFailedPrecondition, "cannot create '" + (folder / "f.tmp-0a").string() + "': File exists",
               [&] { AtomicFile other(folder / "f", "0a"); });
  EXPECT_FALSE(file.is_in_place());
  file.commit();
  EXPECT_TRUE(file.is_in_place());
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(AtomicFile, RenameWhoseAnswerWasLost_IsACommit) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "f", "0a");
  std::filesystem::rename(folder / "f.tmp-0a", folder / "f");
  file.commit();
  EXPECT_TRUE(file.is_in_place());
  EXPECT_EQ(folder.names(), Names{"f"});
}

TEST(AtomicFile, SecondCommit_IsRefused) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "f");
  file.commit();
  expect_error(ErrorCode::kFailedPrecondition, "it is no longer open, because it was committed",
               [&] { file.commit(); });
}

TEST(AtomicFile, PathThatCannotBeAFile_IsRefused) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::kInvalidArgument, "it is a directory", [&] { AtomicFile file(folder.path()); });
  expect_error(ErrorCode::kInvalidArgument, "the path has no file name", [&] { AtomicFile file(folder / "x/"); });
  expect_error(ErrorCode::kInvalidArgument, "the path has no file name", [&] { AtomicFile file(""); });
  expect_error(ErrorCode::kInvalidArgument, "No such file or directory", [&] { AtomicFile file(folder / "x/f"); });
}

TEST(AtomicFile, RenameThatNobodyKnowsOf_IsAFaultAndCountsAsInPlace) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "d");
  AtomicFile file(folder / "d" / "f");
  std::filesystem::rename(folder / "d", folder / "e");
  write_file(folder / "d", "not a folder: what lies in it cannot be examined");
  expect_error(ErrorCode::kDataLoss, "Not a directory; it may be in place all the same, the system cannot say",
               [&] { file.commit(); });
  EXPECT_TRUE(file.is_in_place());
}

}  // namespace
}  // namespace hyper_parallel
