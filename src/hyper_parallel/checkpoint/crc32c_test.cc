#include "hyper_parallel/checkpoint/crc32c.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/crc32c_kernels.h"
#include "tests/support/safetensors_bytes.h"

namespace hyper_parallel {
namespace {

// Bytes that repeat at no distance that a table or a stretch has.
std::vector<std::byte> sample(size_t count) {
  std::vector<std::byte> bytes(count);
  uint32_t state = 12345;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

uint32_t run(crc32c_kernels::Kernel kernel, std::span<const std::byte> bytes, uint32_t before = 0) {
  return ~kernel(~before, bytes);
}

void expect_of_all(std::string_view bytes, uint32_t checksum) {
  EXPECT_EQ(crc32c(bytes_of(bytes)), checksum);
  for (const auto kernel : crc32c_kernels::available()) EXPECT_EQ(run(kernel, bytes_of(bytes)), checksum);
}

std::string counting(int first, int step) {
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(first + i * step);
  return bytes;
}

TEST(Crc32c, TestVectorsOfRfc3720AppendixB4_Hold) {
  expect_of_all(std::string(32, '\0'), 0x8A9136AA);
  expect_of_all(std::string(32, '\xff'), 0x62A8AB43);
  expect_of_all(counting(0, 1), 0x46DD794E);
  expect_of_all(counting(31, -1), 0x113FDB5C);
  std::string read_command(48, '\0');
  read_command[0] = '\x01';
  read_command[1] = '\xc0';
  read_command[16] = '\x14';
  read_command[22] = '\x04';
  read_command[27] = '\x14';
  read_command[31] = '\x18';
  read_command[32] = '\x28';
  read_command[40] = '\x02';
  expect_of_all(read_command, 0xD9963A56);
}

TEST(Crc32c, NothingAndTheUsualCheck_Hold) {
  expect_of_all("", 0);
  expect_of_all("123456789", 0xE3069283);
}

TEST(Crc32c, OfAnyLengthAndAlignment_IsThatOfThePortableKernel) {
  const std::vector<std::byte> bytes = sample(3 * 4096 * 2 + 3 * 256 * 2 + 64);
  const auto expect_equal = [&](size_t begin, size_t size) {
    const auto part = std::span(bytes).subspan(begin, size);
    const uint32_t expected = run(crc32c_kernels::portable, part);
    ASSERT_EQ(crc32c(part), expected) << "at " << begin << ", of " << size;
    for (const auto kernel : crc32c_kernels::available())
      ASSERT_EQ(run(kernel, part), expected) << begin << " " << size;
  };
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size = 0; size < 100; ++size) expect_equal(begin, size);
    for (const size_t stretch : std::initializer_list<size_t>{256, 512, 3 * 256, 1024, 5 * 256, 3 * 4096,
                                                              3 * 4096 + 3 * 256, 2 * 3 * 4096 + 3 * 256}) {
      for (size_t size = stretch - 9; size < stretch + 10; ++size) expect_equal(begin, size);
    }
  }
}

// What a register of powers can get wrong shows in each single bit alone.
TEST(Crc32c, OfEachSingleBit_IsThatOfThePortableKernel) {
  std::vector<std::byte> bytes(2 * 256 + 8);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = std::byte{1} << (bit % 8);
    const uint32_t expected = run(crc32c_kernels::portable, bytes);
    for (const auto kernel : crc32c_kernels::available()) ASSERT_EQ(run(kernel, bytes), expected) << bit;
    bytes[bit / 8] = std::byte{0};
  }
}

TEST(Crc32c, OfParts_GoesOnFromTheChecksumBefore) {
  const std::vector<std::byte> bytes = sample(20'000);
  const uint32_t whole = crc32c(bytes);
  for (const size_t cut : std::initializer_list<size_t>{0, 1, 7, 768, 12'288, 12'289, 19'999, 20'000}) {
    const auto head = std::span(bytes).first(cut);
    const auto tail = std::span(bytes).subspan(cut);
    EXPECT_EQ(crc32c(tail, crc32c(head)), whole) << cut;
    for (const auto kernel : crc32c_kernels::available()) EXPECT_EQ(run(kernel, tail, run(kernel, head)), whole) << cut;
  }
}

TEST(Crc32c, OneChangedBit_ChangesIt) {
  std::vector<std::byte> bytes = sample(4096);
  const uint32_t before = crc32c(bytes);
  for (size_t at = 0; at < bytes.size(); at += 97) {
    bytes[at] ^= std::byte{0x10};
    EXPECT_NE(crc32c(bytes), before) << at;
    bytes[at] ^= std::byte{0x10};
  }
}

TEST(BlockChecksums, AreOnePerMebibyte_AndTheLastOfTheRest) {
  const auto block = static_cast<size_t>(kBlockBytes);
  const std::vector<std::byte> bytes = sample(2 * block + 5);
  const std::span<const std::byte> all(bytes);
  EXPECT_EQ(block_checksums(all), (std::vector<uint32_t>{crc32c(all.first(block)), crc32c(all.subspan(block, block)),
                                                         crc32c(all.subspan(2 * block))}));
  EXPECT_EQ(block_checksums(all.first(2 * block)).size(), 2u);
  EXPECT_EQ(block_checksums(all.first(1)).size(), 1u);
  EXPECT_EQ(block_checksums({}).size(), 0u);
}

}  // namespace
}  // namespace hyper_parallel
