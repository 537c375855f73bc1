#include "hyper_parallel/checkpoint/safetensors_file.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

// Two tensors behind a header whose length is odd, so that b's elements are not aligned in memory.
const std::string kJson =
    R"({"b":{"dtype":"I16","shape":[2],"data_offsets":[3,7]},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
    R"("e":{"dtype":"F32","shape":[0],"data_offsets":[7,7]}})";

TEST(SafetensorsFile, Bytes_AreThoseOfTheTensorInPlace) {
  const TemporaryFolder folder;
  write_file(folder / "f", file_of(kJson, "abcWXYZ"));
  const SafetensorsFile file(folder / "f");
  EXPECT_EQ(file.header().tensors().size(), 3U);
  EXPECT_EQ(text_of(file.bytes("a")), "abc");
  EXPECT_EQ(text_of(file.bytes("b")), "WXYZ");
  EXPECT_EQ(text_of(file.bytes(file.header().at("b"))), "WXYZ");
  EXPECT_TRUE(file.bytes("e").empty());
  EXPECT_EQ(file.bytes("a").data() + 3, file.bytes("b").data());
  EXPECT_EQ(file.data_begin(), static_cast<int64_t>(8 + kJson.size()));
  EXPECT_EQ(file.size(), static_cast<int64_t>(8 + kJson.size() + 7));
}

TEST(SafetensorsFile, MovedFile_StillReads) {
  const TemporaryFolder folder;
  write_file(folder / "f", file_of(kJson, "abcWXYZ"));
  SafetensorsFile first(folder / "f");
  const SafetensorsFile second = std::move(first);
  EXPECT_EQ(text_of(second.bytes("b")), "WXYZ");
}

TEST(SafetensorsFile, UnknownTensor_IsRefused) {
  const TemporaryFolder folder;
  write_file(folder / "f", file_of(kJson, "abcWXYZ"));
  const SafetensorsFile file(folder / "f");
  expect_error(ErrorCode::kInvalidArgument, "there is no tensor 'w' among the 3 of the file", [&] { file.bytes("w"); });
}

TEST(SafetensorsFile, EntryOfALargerFile_IsRefused) {
  const TemporaryFolder folder;
  write_file(folder / "f", file_of(kJson, "abcWXYZ"));
  const SafetensorsFile file(folder / "f");
  const auto expect_refused = [&](int64_t begin, int64_t end, const std::string& text) {
    expect_error(ErrorCode::kInvalidArgument, text, [&] { file.bytes(TensorEntry{"w", DType::kU8, {1}, begin, end}); });
  };
  expect_refused(7, 8, "tensor 'w' has the bytes [7, 8), outside the file's data section of 7 bytes");
  expect_refused(-1, 0, "[-1, 0), outside");
  expect_refused(4, 3, "[4, 3), outside");
}

TEST(SafetensorsFile, BadContent_IsDataLossAndNamesTheFile) {
  const TemporaryFolder folder;
  const auto expect_refused = [&](const std::string& content, const std::string& text) {
    write_file(folder / "f", content);
    const std::string path = "'" + (folder / "f").string() + "'";
    expect_error(ErrorCode::kDataLoss, path + text, [&] { SafetensorsFile file(folder / "f"); });
  };
  expect_refused("", ": the file is empty, not a safetensors file");
  expect_refused("GGUF\x03\x01\x01\x01\x01\x01", ": the first 8 bytes declare a header of ");
  expect_refused(file_of(kJson, "abcWXY"), ": the tensors take 7 bytes, but only 6 follow the header");
  expect_refused(file_of(R"({"a":1})"), ": tensor 'a' must be an object, found 1");
}

TEST(SafetensorsFile, PathThatIsNoFile_IsTheCallersFault) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::kInvalidArgument, "': it is a directory", [&] { SafetensorsFile file(folder.path()); });
  expect_error(ErrorCode::kInvalidArgument, "': No such file or directory",
               [&] { SafetensorsFile file(folder / "no"); });
}

}  // namespace
}  // namespace hyper_parallel
