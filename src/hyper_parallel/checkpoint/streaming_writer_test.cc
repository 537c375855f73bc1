#include "hyper_parallel/checkpoint/streaming_writer.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace hyper_parallel {
namespace {

std::string pattern(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 31 + i / 256);
  return bytes;
}

struct Copied {
  size_t to;
  size_t from;
  size_t count;
};

// What the runs, copied in order, make of a target; and the same by plain assignment.
void expect_copied(const std::vector<Copied>& runs, const std::string& source, size_t target_bytes) {
  std::string target(target_bytes, '\xEE');
  std::string expected = target;
  {
    StreamingWriter writer;
    for (const Copied& run : runs) {
      writer.copy(reinterpret_cast<std::byte*>(target.data()) + run.to,
                  reinterpret_cast<const std::byte*>(source.data()) + run.from, run.count);
      expected.replace(run.to, run.count, source, run.from, run.count);
    }
  }
  EXPECT_EQ(target, expected) << runs.size() << " runs, the first of " << runs.front().count;
}

TEST(StreamingWriter, OneRunOfAnyLengthAndAlignment_IsCopiedExactly) {
  const std::string source = pattern(40000);
  for (const size_t count : std::initializer_list<size_t>{0, 1, 63, 1023, 1024, 1025, 4095, 4096, 4097, 20000}) {
    for (const size_t to : std::initializer_list<size_t>{0, 1, 15, 16, 48, 63, 64}) {
      for (const size_t from : std::initializer_list<size_t>{0, 1, 64})
        expect_copied({{to, from, count}}, source, 20200);
    }
  }
}

TEST(StreamingWriter, RunsThatFollowOneAnother_AreGatheredBeyondThePiecesSize) {
  const std::string source = pattern(40000);
  for (const size_t count : std::initializer_list<size_t>{1, 7, 256, 1000, 4095}) {
    std::vector<Copied> runs;
    for (size_t at = 5; at + count < 40000; at += count) runs.push_back({at, 40000 - at - count, count});
    expect_copied(runs, source, 40010);
  }
}

TEST(StreamingWriter, RunsOfWholeLines_OnAndOffTheLines_BetweenOthers) {
  const std::string source = pattern(40000);
  for (size_t shift = 0; shift < 64; shift += 16) {
    std::vector<Copied> runs;
    for (size_t at = shift; at + 512 < 20000; at += 512) {
      runs.push_back({at, at / 2, 256});
      runs.push_back({at + 256, at / 3, 128});
      runs.push_back({at + 384, at / 5, at % 3 == 0 ? size_t{64} : size_t{5}});
    }
    expect_copied(runs, source, 20200);
  }
}

TEST(StreamingWriter, RunsWithGapsBackwardsAndLongOnesBetween_AreAllCopied) {
  const std::string source = pattern(40000);
  expect_copied({{100, 0, 50},
                 {150, 50, 50},
                 {210, 7, 9},
                 {90, 11, 10},
                 {300, 0, 5000},
                 {5300, 99, 3},
                 {5303, 1, 0},
                 {5303, 5, 2000},
                 {7303, 8, 8000},
                 {0, 0, 1}},
                source, 16000);
}

TEST(StreamingWriter, Finish_MakesTheCopiesWhileTheWriterLives) {
  const std::string source = "abcdef";
  std::string target(6, '.');
  StreamingWriter writer;
  writer.copy(reinterpret_cast<std::byte*>(target.data()), reinterpret_cast<const std::byte*>(source.data()), 6);
  writer.finish();
  EXPECT_EQ(target, source);
}

}  // namespace
}  // namespace hyper_parallel
