#include "hyper_parallel/checkpoint/metadata_codec.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/metadata_text.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/value_samples.h"

namespace hyper_parallel {
namespace {

CheckpointMetadata parse(std::string_view text) { return parse_metadata(bytes_of(text), "c/.metadata"); }

// Every fault of the file is kDataLoss and names the file first.
void expect_refused(std::string_view from, std::string_view to, const std::string& text) {
  expect_error(ErrorCode::kDataLoss, "c/.metadata: " + text, [&] { parse(changed_text(from, to)); });
}

CheckpointParts sample() {
  CheckpointParts parts;
  parts.save_id = "fedcba9876543210";
  parts.files = {{"data-a", 5 << 20}, {"data-b \xc3\xa9", 8}};
  StoredTensor tensor("layer.\"0\"\n\xc3\xa9", DType::kU8, {3, 1 << 20});
  tensor.add_chunk({{0, 0}, {2, 1 << 20}}, 0, 16, "own key", std::vector<uint32_t>{0, 0xFFFFFFFF});
  tensor.add_chunk({{2, 0}, {1, 1 << 20}}, 0, 3 << 20, "", std::vector<uint32_t>{3});
  StoredTensor scalar("scalar", DType::kF64, {});
  scalar.add_chunk({{}, {}}, 1, 0, "", std::vector<uint32_t>{4});
  parts.tensors = {tensor, StoredTensor("empty", DType::kC64, {4, 0, 2}), scalar};
  for (const Value& value : value_samples()) {
    parts.values.push_back({"value " + std::to_string(parts.values.size()), value});
  }
  return parts;
}

TEST(MetadataCodec, Metadata_ComesBack_WithEveryKindOfValue) {
  const CheckpointMetadata metadata(sample());
  EXPECT_EQ(parse(write_metadata(metadata)), metadata);
}

TEST(MetadataCodec, MetadataOfNothing_ComesBack) {
  EXPECT_EQ(parse(write_metadata(CheckpointMetadata())), CheckpointMetadata());
}

TEST(MetadataCodec, Structure_ComesBack) {
  CheckpointParts parts = sample();
  ValueList leaves;
  for (const NamedValue& entry : parts.values) leaves.items.emplace_back(entry.name);
  for (const StoredTensor& tensor : parts.tensors) leaves.items.emplace_back(tensor.name());
  parts.structure = ValueDict{{{Value(int64_t{0}), ValueTuple{{leaves}}}}};
  const CheckpointMetadata metadata(parts);
  EXPECT_EQ(parse(write_metadata(metadata)), metadata);
}

TEST(MetadataCodec, EqualMetadata_GiveEqualText_WhateverTheOrderOfTheParts) {
  CheckpointParts reversed = sample();
  std::reverse(reversed.values.begin(), reversed.values.end());
  std::reverse(reversed.tensors.begin(), reversed.tensors.end());
  EXPECT_EQ(write_metadata(CheckpointMetadata(reversed)), write_metadata(CheckpointMetadata(sample())));
}

TEST(MetadataCodec, Text_HasOneLineForEachTensor) {
  const std::string text = write_metadata(parse(kMetadataText));
  EXPECT_EQ(text, R"({"format":"hyper_parallel.checkpoint","version":1,
"save_id":"0123456789abcdef",
"files":[["a",64]],
"tensors":{
"w":{"dtype":"F32","shape":[2,2],"chunks":[[0,8,0,0,1,2],[0,16,1,0,1,2]],"tensor_keys":["","w.1"],"crc32c":[1,2]}},
"values":{
"step":3},
"structure":null,
"crc32c":3963144183}
)");
  EXPECT_EQ(parse(text), parse(kMetadataText));
}

TEST(MetadataCodec, EveryFlippedBitOfAWrittenText_IsRefused) {
  std::string text = write_metadata(parse(kMetadataText));
  for (size_t i = 0; i + 1 < text.size(); ++i) {  // the last line's end is white space
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      EXPECT_THROW(parse(text), Error) << text;
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
    }
  }
  EXPECT_EQ(parse(text), parse(kMetadataText));
}

TEST(MetadataCodec, ChecksumOfTheText_IsLastAndMayBeLeftOut) {
  const std::string text = write_metadata(parse(kMetadataText));
  const size_t field = text.rfind(",\n\"crc32c\":");
  EXPECT_EQ(parse(text.substr(0, field) + "}"), parse(kMetadataText));
  EXPECT_EQ(parse(text.substr(0, field) + ",  \"crc32c\" :\t" + text.substr(text.rfind(':') + 1)), parse(kMetadataText))
      << "white space behind the comma is not covered";
  expect_refused("null}", "null,\"crc32c\":7}", "the text has checksum 0x");
  expect_refused("null}", "null,\"crc32c\":4294967296}", "the crc32c must be an integer from 0 to 2^32-1, found ");
  expect_refused("null}", "null,\"crc32c\":\"7\"}", "the crc32c must be an integer from 0 to 2^32-1, found '7'");
  expect_refused("\"save_id\"", "\"crc32c\":7,\"save_id\"",
                 "the metadata has the field 'save_id' too late: 'crc32c' must come last");
}

TEST(MetadataCodec, KeysThatAreTheName_AreLeftOut) {
  const CheckpointMetadata metadata = parse(changed_text(R"(["","w.1"])", R"(["w",""])"));
  EXPECT_EQ(write_metadata(metadata).find("tensor_keys"), std::string::npos);
}

TEST(MetadataCodec, LooksLikeMetadata_TellsItFromOtherFiles) {
  EXPECT_TRUE(looks_like_metadata(bytes_of(kMetadataText)));
  EXPECT_TRUE(looks_like_metadata(bytes_of(write_metadata(CheckpointMetadata()))));
  EXPECT_TRUE(looks_like_metadata(bytes_of("{ \"format\" :\n\"hyper_parallel.checkpoint\", rubbish")));
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{}"), std::string(" "), std::string("\x80\x02}q\x00.", 6),
        std::string(R"({"format":"hyper_parallel.checkpoint)"),
        std::string(R"({"format":"hyper_parallel.checkpoints"})"),
        std::string(R"(["format":"hyper_parallel.checkpoint"])"),
        std::string(R"({"version":1,"format":"hyper_parallel.checkpoint"})")}) {
    EXPECT_FALSE(looks_like_metadata(bytes_of(text))) << text;
  }
}

TEST(MetadataCodec, TextOverTheLimit_IsRefusedUnread) {
  const auto size = static_cast<size_t>(kMaxMetadataBytes) + 1;
  void* unreadable = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(unreadable, MAP_FAILED);
  expect_error(ErrorCode::kDataLoss, "c/.metadata: the metadata has 1073741825 bytes, over the limit of 1073741824",
               [&] { parse_metadata({static_cast<const std::byte*>(unreadable), size}, "c/.metadata"); });
  ::munmap(unreadable, size);
}

TEST(MetadataCodec, FaultOfTheSyntax_NamesTheFile) {
  expect_refused(R"("version":1)", R"("version":7)",
                 "the metadata has version 7, but this library reads versions up to 1");
  expect_refused("null}", "null", "the text is not JSON at its byte ");
}

TEST(MetadataCodec, OverlappingChunks_AreRefused) {
  expect_refused("[0,16,1,0,1,2]", "[0,16,0,0,1,2]",
                 "tensor 'w' of shape (2, 2) is not stored right: chunks (0, 0)+(1, 2) and (0, 0)+(1, 2) overlap");
}

TEST(MetadataCodec, Hole_IsRefused) {
  expect_refused("[0,16,1,0,1,2]", "[0,16,1,0,1,1]",
                 "tensor 'w' of shape (2, 2) is not stored right: no chunk holds cell (1, 1)");
}

TEST(MetadataCodec, ChunkOutsideTheShape_IsRefused) {
  expect_refused("[0,16,1,0,1,2]", "[0,16,1,1,1,2]", "tensor 'w' chunk (1, 1)+(1, 2) leaves the shape (2, 2)");
  expect_refused("[0,16,1,0,1,2]", "[0,16,9223372036854775807,0,9223372036854775807,2]", "tensor 'w' chunk ");
  expect_refused("[0,16,1,0,1,2]", "[0,16,1,0,0,2]", "tensor 'w' chunk (1, 0)+(0, 2) has no cells");
}

TEST(MetadataCodec, FileNumberOutOfRange_IsRefused) {
  expect_refused("[0,16,1,0,1,2]", "[1,16,1,0,1,2]", "tensor 'w' chunk 1 lies in file number 1, but there are 1 files");
  expect_refused("[0,16,1,0,1,2]", "[9223372036854775807,16,1,0,1,2]", "tensor 'w' chunk 1 lies in file number ");
}

TEST(MetadataCodec, BytesPastTheFile_AreRefused) {
  expect_refused("[0,16,1,0,1,2]", "[0,57,1,0,1,2]",
                 "tensor 'w' chunk 1 takes 8 bytes from byte 57, but file 'a' has 64");
  expect_refused("[0,16,1,0,1,2]", "[0,9223372036854775807,1,0,1,2]", "tensor 'w' chunk 1 takes 8 bytes from byte ");
}

TEST(MetadataCodec, ShapeWithoutASize_IsRefused_HoweverLarge) {
  expect_refused("[2,2]", "[4611686018427387904,4611686018427387904]", "tensor 'w' has shape ");
}

TEST(MetadataCodec, WrongNumberOfChecksums_IsRefused) {
  expect_refused("[1,2]}", "[1]}", "tensor 'w' has 1 checksums, too few for the blocks of its 2 chunks");
  // A chunk that claims a tebibyte is refused by the count alone.
  expect_refused(R"("shape":[2,2],"chunks":[[0,8,0,0,1,2],[0,16,1,0,1,2]])",
                 R"("shape":[2,274877906944],"chunks":[[0,8,0,0,1,274877906944],[0,16,1,0,1,274877906944]])",
                 "tensor 'w' has 2 checksums, too few for the blocks of its 2 chunks");
}

TEST(MetadataCodec, FileNameThatLeavesTheDirectoryOrHides_IsRefused) {
  for (const char* name : {"..", ".", "../a", "/a", "b/a", ".metadata", ".save.lock", "", "a\\u0000", "a\\n"}) {
    expect_refused(R"(["a",64])", std::string("[\"") + name + "\",64]", "file '");
  }
}

TEST(MetadataCodec, NameTwice_IsRefused) {
  expect_refused(R"(["a",64])", R"(["a",64],["\u0061",64])", "file 'a' occurs twice, but a name must be unique");
  expect_refused(R"("step":3)", R"("step":3,"step":3)", "value 'step' occurs twice, but a name must be unique");
  expect_refused(R"("step":3)", R"("w":3)", "the name 'w' is both a tensor's and a value's");
  const std::string empty = R"({"dtype":"F32","shape":[0],"chunks":[],"crc32c":[]})";
  expect_refused(R"("tensors":{)", R"("tensors":{"v":)" + empty + R"(,"v":)" + empty + ",",
                 "tensor 'v' occurs twice, but a name must be unique");
  expect_refused(R"("step":3)", R"("step":{"dict":[[1,2],[1,3]]})", "value 'step' has a dict with the key 1 twice");
}

TEST(MetadataCodec, SaveIdAndBigIntegersThatAreNone_AreRefused) {
  expect_refused("0123456789abcdef", "0123", "save_id is '0123', but it must be 16 lower-case hex digits");
  expect_refused(R"("step":3)", R"("step":{"int":"3"})", "value 'step' has the big integer '3', but its digits must ");
}

TEST(MetadataCodec, StructureThatDoesNotFitTheEntries_IsRefused) {
  expect_refused(R"("structure":null)", R"("structure":["w"])", "the structure lacks the value 'step'");
  expect_refused(R"("structure":null)", R"("structure":["w","step","v"])",
                 "the structure has the leaf 'v', but there is no entry of that name");
}

}  // namespace
}  // namespace hyper_parallel
