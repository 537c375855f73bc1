#include "hyper_parallel/checkpoint/chunk_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;

// What a progress was told, step by step: one step for each block.
struct Steps final : Progress {
  void start(int64_t) override {}
  void advance(int64_t bytes) override { all.push_back(bytes); }
  void finish() override {}
  std::vector<int64_t> all;
};

// A chunk of `cells` bytes that begins at byte 3 of a file.
class ChunkReader : public ::testing::Test {
 protected:
  ChunkReader() {
    for (size_t i = 0; i < cells.size(); ++i) cells[i] = static_cast<char>(i * 7 + i / 251);
    write_file(folder / "f", "abc" + cells);
    checksums = block_checksums(bytes_of(cells));
    source.path = quoted_path(folder / "f");
    source.tensor = "w";
    const auto size = static_cast<int64_t>(cells.size());
    source.chunk = {{{0}, {size}}, 0, 3, size, "w", checksums};
  }

  // From bytes `from` of the chunk to bytes `to` of `target`.
  Delivery delivery(const StridedView& from, const StridedView& to) {
    return {ViewCursor(byte_view(from, 8)), ViewCursor(byte_view(to, 8)), std::as_writable_bytes(std::span(target))};
  }

  void read(std::vector<Delivery> deliveries) {
    const FileDescriptor file = open_file(folder / "f", O_RDONLY, 0, "cannot open");
    source.read = reads_from(file.get());
    read_chunk(source, std::move(deliveries), buffer, steps);
  }

  TemporaryFolder folder;
  std::string cells = std::string(static_cast<size_t>(3 * kBlockBytes + 10), '\0');
  std::string target = std::string(cells.size(), '\0');
  std::vector<uint32_t> checksums;
  std::vector<std::byte> buffer = std::vector<std::byte>(static_cast<size_t>(kBlockBytes));
  ChunkSource source;
  Steps steps;
};

TEST_F(ChunkReader, NoDelivery_ReadsNothing) {
  read({});
  EXPECT_THAT(steps.all, ElementsAre());
}

TEST_F(ChunkReader, OneRun_IsReadInPlaceBlockByBlock) {
  buffer.clear();  // not needed
  read({delivery(run_view(0, source.chunk.bytes), run_view(0, source.chunk.bytes))});
  EXPECT_EQ(target, cells);
  EXPECT_THAT(steps.all, ElementsAre(kBlockBytes, kBlockBytes, kBlockBytes, 10));
}

TEST_F(ChunkReader, TwoDeliveriesOfOneBlock_ReadItOnce) {
  read({delivery(run_view(5, 4), run_view(0, 4)), delivery(run_view(3, 4), run_view(10, 4)),
        delivery(run_view(kBlockBytes * 2, 2), run_view(20, 2))});
  EXPECT_EQ(target.substr(0, 4), cells.substr(5, 4));
  EXPECT_EQ(target.substr(10, 4), cells.substr(3, 4));
  EXPECT_EQ(target.substr(20, 2), cells.substr(2 * kBlockBytes, 2));
  EXPECT_THAT(steps.all, ElementsAre(8, 2));
}

TEST_F(ChunkReader, StridedRuns_SkipTheBlocksBetweenThem) {
  read({delivery({1, {2, 3}, {2 * kBlockBytes, 1}}, {0, {3, 2}, {2, 1}})});
  EXPECT_EQ(target.substr(0, 6), cells.substr(1, 3) + cells.substr(2 * kBlockBytes + 1, 3));
  EXPECT_THAT(steps.all, ElementsAre(3, 3));
}

TEST_F(ChunkReader, WrongChecksum_NamesFileTensorAndBlock) {
  checksums[3] ^= 1;
  const std::string place =
      "checkpoint file '" + (folder / "f").string() + "': block 3 of tensor 'w' (bytes [3145731, 3145741)) ";
  expect_error(ErrorCode::kDataLoss, place + "has checksum 0x",
               [&] { read({delivery(run_view(source.chunk.bytes - 1, 1), run_view(0, 1))}); });
  EXPECT_EQ(target[0], '\0');  // it went through the buffer
  EXPECT_NO_THROW(read({delivery(run_view(0, 1), run_view(0, 1))}));
}

TEST_F(ChunkReader, FileThatEndsEarlyOrCannotBeRead_IsDataLoss) {
  const auto last = [&] { return delivery(run_view(source.chunk.bytes - 1, 1), run_view(0, 1)); };
  std::filesystem::resize_file(folder / "f", static_cast<uintmax_t>(3 + 3 * kBlockBytes + 4));
  expect_error(ErrorCode::kDataLoss,
               "block 3 of tensor 'w' (bytes [3145731, 3145741)) is not there: the file ends at byte 3145735",
               [&] { read({last()}); });
  const FileDescriptor directory = open_file(folder.path(), O_RDONLY, 0, "cannot open");
  source.read = reads_from(directory.get());
  expect_error(ErrorCode::kDataLoss, "cannot be read: Is a directory",
               [&] { read_chunk(source, {last()}, buffer, steps); });
}

}  // namespace
}  // namespace hyper_parallel
