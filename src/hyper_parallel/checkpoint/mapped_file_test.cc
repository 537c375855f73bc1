#include "hyper_parallel/checkpoint/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

TEST(MappedFile, Bytes_AreThoseOfTheFile) {
  const TemporaryFolder folder;
  const std::string text = std::string(10'000, 'x') + "end";
  write_file(folder / "f", text);
  EXPECT_EQ(text_of(MappedFile(folder / "f").bytes()), text);
}

TEST(MappedFile, EmptyFile_HasNoBytes) {
  const TemporaryFolder folder;
  write_file(folder / "f", "");
  EXPECT_TRUE(MappedFile(folder / "f").bytes().empty());
}

TEST(MappedFile, Move_KeepsTheAddress) {
  const TemporaryFolder folder;
  write_file(folder / "f", "abc");
  write_file(folder / "g", "de");
  MappedFile first(folder / "f");
  const std::byte* address = first.bytes().data();
  MappedFile second = std::move(first);
  EXPECT_EQ(second.bytes().data(), address);
  MappedFile third(folder / "g");
  third = std::move(second);
  EXPECT_EQ(text_of(third.bytes()), "abc");
}

TEST(MappedFile, ReplacedFile_KeepsItsOldContent) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  const MappedFile file(folder / "f");
  write_file(folder / "g", "new and longer");
  std::filesystem::rename(folder / "g", folder / "f");
  EXPECT_EQ(text_of(file.bytes()), "old");
}

TEST(MappedFile, Directory_IsRefused) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::kInvalidArgument, "cannot open '" + folder.path().string() + "': it is a directory",
               [&] { MappedFile file(folder.path()); });
}

TEST(MappedFile, PipeOrDevice_IsRefusedWithoutWaiting) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ErrorCode::kInvalidArgument, "pipe': it is not a regular file",
               [&] { MappedFile file(folder / "pipe"); });
  expect_error(ErrorCode::kInvalidArgument, "cannot open '/dev/null': it is not a regular file",
               [] { MappedFile file("/dev/null"); });
}

TEST(MappedFile, MissingFile_IsRefused) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::kInvalidArgument, "nothing': No such file or directory",
               [&] { MappedFile file(folder / "nothing"); });
}

}  // namespace
}  // namespace hyper_parallel
