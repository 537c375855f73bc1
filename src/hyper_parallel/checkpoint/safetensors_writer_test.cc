#include "hyper_parallel/checkpoint/safetensors_writer.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/safetensors_codec.h"
#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

// In the order of the data: a at [0, 4), e without bytes, b at [4, 7).
SafetensorsHeader three_tensors() {
  return arrange_tensors({{"b", DType::kU8, {3}}, {"a", DType::kF32, {}}, {"e", DType::kI16, {0, 2}}}, {{"k", "v"}});
}

// Content that tells every byte of a tensor from its neighbours.
std::string content_of(const TensorEntry& tensor) {
  std::string content;
  for (int64_t i = tensor.begin; i < tensor.end; ++i) content += static_cast<char>(i * 7 + 1);
  return content;
}

TEST(SafetensorsWriter, File_IsHeaderThenDataInOrder) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "f", three_tensors());
  writer.append("a", bytes_of("AAAA"));
  writer.append("e", bytes_of(""));
  writer.append("b", bytes_of("bbb"));
  writer.commit();
  EXPECT_EQ(read_file(folder / "f"), write_safetensors_header(three_tensors()) + "AAAAbbb");
  EXPECT_EQ(folder.names(), std::set<std::string>{"f"});
}

TEST(SafetensorsWriter, WrittenFile_ReadsBackEqual_ForEveryType) {
  const TemporaryFolder folder;
  std::vector<TensorSpec> specs = {{"scalar", DType::kF64, {}}, {"empty", DType::kBF16, {3, 0}}, {"", DType::kU8, {1}}};
  for (const DType dtype : all_dtypes()) specs.push_back({std::string(to_string(dtype)), dtype, {5, 4}});
  SafetensorsWriter writer(folder / "f", arrange_tensors(specs, {{"format", "pt"}}));
  for (const TensorEntry& tensor : writer.header().tensors()) writer.append(tensor.name, bytes_of(content_of(tensor)));
  writer.commit();

  const SafetensorsFile file(folder / "f");
  EXPECT_EQ(file.header(), writer.header());
  EXPECT_EQ(file.data_begin() % 8, 0);
  for (const TensorEntry& tensor : file.header().tensors()) {
    EXPECT_EQ(text_of(file.bytes(tensor)), content_of(tensor)) << tensor.name;
  }
}

TEST(SafetensorsWriter, Pieces_OfAnySize_GiveTheSameFile) {
  const TemporaryFolder folder;
  for (const size_t piece : {1U, 2U, 3U, 100U}) {
    SafetensorsWriter writer(folder / "f", three_tensors());
    for (const TensorEntry& tensor : writer.header().tensors()) {
      const std::string content = content_of(tensor);
      for (size_t at = 0; at < content.size(); at += piece) {
        writer.append(tensor.name, bytes_of(std::string_view(content).substr(at, piece)));
      }
    }
    writer.commit();
    EXPECT_EQ(text_of(SafetensorsFile(folder / "f").bytes("b")), content_of(three_tensors().at("b"))) << piece;
  }
}

TEST(SafetensorsWriter, NoTensors_IsAFileThatOpens) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "f", SafetensorsHeader());
  writer.commit();
  EXPECT_EQ(SafetensorsFile(folder / "f").header(), SafetensorsHeader());
}

TEST(SafetensorsWriter, TensorOutOfOrder_IsRefused) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "f", three_tensors());
  expect_error(ErrorCode::kInvalidArgument,
               "got bytes of tensor 'b', but next in the order of the header is tensor 'a'",
               [&] { writer.append("b", bytes_of("bbb")); });
  writer.append("a", bytes_of("AA"));
  expect_error(ErrorCode::kInvalidArgument,
               "got bytes of tensor 'b', but next in the order of the header is tensor 'a'",
               [&] { writer.append("b", bytes_of("b")); });
  writer.append("a", bytes_of("AA"));
  expect_error(ErrorCode::kInvalidArgument, "tensor 'a' of 4 bytes has room for 0 more, but gets 1",
               [&] { writer.append("a", bytes_of("A")); });
  writer.append("b", bytes_of("bbb"));
  writer.commit();
  EXPECT_EQ(text_of(SafetensorsFile(folder / "f").bytes("a")), "AAAA");  // what was refused left no trace
}

TEST(SafetensorsWriter, MoreBytesThanTheTensorHas_AreRefused) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "f", three_tensors());
  writer.append("a", bytes_of("A"));
  expect_error(ErrorCode::kInvalidArgument, "tensor 'a' of 4 bytes has room for 3 more, but gets 4",
               [&] { writer.append("a", bytes_of("AAAA")); });
  expect_error(ErrorCode::kInvalidArgument, "tensor 'e' of 0 bytes has room for 0 more, but gets 1",
               [&] { writer.append("e", bytes_of("x")); });
}

TEST(SafetensorsWriter, UnknownTensor_IsRefused) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "f", three_tensors());
  expect_error(ErrorCode::kInvalidArgument, "there is no tensor 'w'", [&] { writer.append("w", bytes_of("")); });
}

TEST(SafetensorsWriter, CommitWithBytesMissing_IsRefusedAndCanBeCompleted) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  SafetensorsWriter writer(folder / "f", three_tensors());
  writer.append("a", bytes_of("AAAA"));
  expect_error(ErrorCode::kInvalidArgument, "f' got 4 of 7 bytes; next is tensor 'b'", [&] { writer.commit(); });
  EXPECT_EQ(read_file(folder / "f"), "old");
  writer.append("b", bytes_of("bbb"));
  writer.commit();
  EXPECT_EQ(text_of(SafetensorsFile(folder / "f").bytes("b")), "bbb");
}

TEST(SafetensorsWriter, NoCommit_LeavesWhatWasThere) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  {
    SafetensorsWriter(folder / "f", three_tensors()).append("a", bytes_of("AAAA"));
  }
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder.names(), std::set<std::string>{"f"});
}

TEST(SafetensorsWriter, FileOverItsOwnMappedSource_KeepsTheSourceReadable) {
  const TemporaryFolder folder;
  write_file(folder / "f", write_safetensors_header(three_tensors()) + "AAAAbbb");
  const SafetensorsFile source(folder / "f");
  SafetensorsWriter writer(folder / "f", source.header());
  for (const TensorEntry& tensor : source.header().tensors()) writer.append(tensor.name, source.bytes(tensor));
  writer.commit();
  EXPECT_EQ(text_of(source.bytes("b")), "bbb");
  EXPECT_EQ(text_of(SafetensorsFile(folder / "f").bytes("b")), "bbb");
}

}  // namespace
}  // namespace hyper_parallel
