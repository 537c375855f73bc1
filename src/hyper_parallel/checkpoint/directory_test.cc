#include "hyper_parallel/checkpoint/directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

using ::testing::UnorderedElementsAre;

TEST(Directory, MissingPathOrFile_IsRefused) {
  const TemporaryFolder folder;
  write_file(folder / "f", "x");
  expect_error(ErrorCode::kInvalidArgument, "cannot open '" + (folder / "none").string() + "': No such file",
               [&] { Directory directory(folder / "none"); });
  expect_error(ErrorCode::kInvalidArgument, "Not a directory", [&] { Directory directory(folder / "f"); });
}

TEST(Directory, OpenRegular_GivesRegularFilesOnly) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  write_file(folder / "f", "x");
  std::filesystem::create_symlink("f", folder / "link");
  std::filesystem::create_directory(folder / "sub");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(directory.open_regular("f", O_RDONLY).has_value());
  EXPECT_FALSE(directory.open_regular("none", O_RDONLY).has_value());
  expect_error(ErrorCode::kDataLoss,
               "'" + (folder / "link").string() + "' is a symbolic link, but a checkpoint's files",
               [&] { directory.open_regular("link", O_RDONLY); });
  for (const char* name : {"sub", "pipe"}) {
    expect_error(ErrorCode::kDataLoss, "is no regular file", [&] { directory.open_regular(name, O_RDONLY); });
  }
  expect_error(ErrorCode::kFailedPrecondition, "File exists",
               [&] { directory.open_regular("f", O_WRONLY | O_CREAT | O_EXCL); });
}

TEST(Directory, RenamedMeanwhile_IsStillTheSame) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a");
  const Directory directory(folder / "a");
  std::filesystem::rename(folder / "a", folder / "b");
  write_file(folder / "b" / "f", "x");
  EXPECT_TRUE(directory.open_regular("f", O_RDONLY).has_value());
  EXPECT_NO_THROW(directory.flush());
}

TEST(Directory, Names_AreThoseOfAllEntriesEveryTime) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  write_file(folder / ".hidden", "x");
  std::filesystem::create_directory(folder / "sub");
  EXPECT_THAT(directory.names(), UnorderedElementsAre(".hidden", "sub"));
  EXPECT_THAT(directory.names(), UnorderedElementsAre(".hidden", "sub"));
}

TEST(Directory, StatusAndRemove_DoNotFollowSymbolicLinks) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  write_file(folder / "f", "four");
  std::filesystem::create_symlink("f", folder / "link");
  std::filesystem::create_directory(folder / "sub");
  EXPECT_EQ(directory.status("f")->st_size, 4);
  EXPECT_TRUE(S_ISLNK(directory.status("link")->st_mode));
  EXPECT_FALSE(directory.status("none").has_value());
  EXPECT_TRUE(directory.remove("link"));
  EXPECT_TRUE(directory.remove("none"));
  EXPECT_FALSE(directory.remove("sub"));
  EXPECT_EQ(folder.names(), (std::set<std::string>{"f", "sub"}));
}

TEST(Directory, RenamedOrReplaced_IsNotAtItsPath) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "d");
  const Directory directory(folder / "d");
  EXPECT_TRUE(directory.is_at_its_path());
  std::filesystem::rename(folder / "d", folder / "e");
  EXPECT_FALSE(directory.is_at_its_path());
  std::filesystem::create_directory(folder / "d");
  EXPECT_FALSE(directory.is_at_its_path());
}

}  // namespace
}  // namespace hyper_parallel
