#include "hyper_parallel/checkpoint/metadata_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

TEST(MetadataFile, Text_IsReadWhole) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  EXPECT_FALSE(read_metadata_file(directory).has_value());
  write_file(folder / ".metadata", "");
  EXPECT_EQ(read_metadata_file(directory), "");
  const std::string text(size_t{3} << 20, 'x');
  write_file(folder / ".metadata", text);
  EXPECT_EQ(read_metadata_file(directory), text);
}

TEST(MetadataFile, NoRegularFile_IsDataLoss) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  std::filesystem::create_symlink("elsewhere", folder / ".metadata");
  expect_error(ErrorCode::kDataLoss, ".metadata' is a symbolic link", [&] { read_metadata_file(directory); });
  std::filesystem::remove(folder / ".metadata");
  std::filesystem::create_directory(folder / ".metadata");
  expect_error(ErrorCode::kDataLoss, ".metadata' ", [&] { read_metadata_file(directory); });
}

TEST(MetadataFile, LargerThanTheLimit_IsDataLossBeforeItIsRead) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  write_file(folder / ".metadata", "");
  std::filesystem::resize_file(folder / ".metadata", kMaxMetadataBytes + 1);
  expect_error(ErrorCode::kDataLoss, "has 1073741825 bytes, more than the limit of 1073741824",
               [&] { read_metadata_file(directory); });
}

}  // namespace
}  // namespace hyper_parallel
