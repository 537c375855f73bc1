#include "hyper_parallel/checkpoint/parallel_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "hyper_parallel/checkpoint/crc32c.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kChunkBytes = 4 * kBlockBytes;  // a job each

// Remembers who told it what.
struct HeardProgress final : Progress {
  void start(int64_t) override {}
  void advance(int64_t bytes) override {
    total += bytes;
    threads.insert(std::this_thread::get_id());
    if (fails) throw std::runtime_error("the progress is tired");
  }
  void finish() override {}
  int64_t total = 0;
  bool fails = false;
  std::set<std::thread::id> threads;
};

// Chunks of memory, each delivered in one run to its place in `target`.
class ParallelReading : public ::testing::Test {
 protected:
  void make_chunks(size_t count) {
    stored.resize(count * static_cast<size_t>(kChunkBytes));
    for (size_t i = 0; i < stored.size(); i += 997) stored[i] = static_cast<std::byte>(i / 997);
    target.assign(stored.size(), std::byte{0});
    for (size_t i = 0; i < count; ++i) checksums.push_back(block_checksums(part(stored, i)));
  }

  static std::span<std::byte> part(std::vector<std::byte>& bytes, size_t chunk) {
    return std::span(bytes).subspan(chunk * static_cast<size_t>(kChunkBytes), static_cast<size_t>(kChunkBytes));
  }

  ChunkRead chunk(size_t number, ReadBytes read = {}) {
    if (!read) {
      read = [this](int64_t begin, std::span<std::byte> into) {
        std::memcpy(into.data(), stored.data() + begin, into.size());
      };
    }
    const auto begin = static_cast<int64_t>(number) * kChunkBytes;
    ChunkRead made;
    made.source = {std::move(read), "'f'", "w", {{{0}, {kChunkBytes}}, 0, begin, kChunkBytes, "w", checksums[number]}};
    made.deliveries.push_back({ViewCursor(byte_view(run_view(0, kChunkBytes), 8)),
                               ViewCursor(byte_view(run_view(0, kChunkBytes), 8)), part(target, number)});
    made.owners.push_back(std::shared_ptr<void>(nullptr, [this](void*) {
      const std::lock_guard lock(mutex);
      ++let_go;
      owner_threads.insert(std::this_thread::get_id());
    }));
    made.bytes = kChunkBytes;
    return made;
  }

  std::vector<std::byte> stored;
  std::vector<std::byte> target;
  std::vector<std::vector<uint32_t>> checksums;
  HeardProgress progress;
  std::mutex mutex;
  size_t let_go = 0;
  std::set<std::thread::id> owner_threads;
};

TEST_F(ParallelReading, AnyNumberOfThreads_DeliversAll_AndSpeaksOnTheCallersThread) {
  make_chunks(23);
  for (const int threads : {1, 2, 3, 8}) {
    std::ranges::fill(target, std::byte{0});
    progress.total = 0;
    let_go = 0;
    {
      ParallelReader reader(threads, progress);
      for (size_t i = 0; i < checksums.size(); ++i) reader.add(chunk(i));
      reader.finish();
      EXPECT_EQ(let_go, checksums.size()) << threads;
    }
    EXPECT_TRUE(target == stored) << threads;
    EXPECT_EQ(progress.total, static_cast<int64_t>(stored.size())) << threads;
  }
  EXPECT_EQ(progress.threads, std::set{std::this_thread::get_id()});
  EXPECT_EQ(owner_threads, std::set{std::this_thread::get_id()});
}

TEST_F(ParallelReading, Threads_ReadAtTheSameTime) {
  make_chunks(6);
  std::condition_variable arrived;
  int inside = 0;
  const ReadBytes meets_another = [&](int64_t begin, std::span<std::byte> into) {
    std::unique_lock lock(mutex);
    ++inside;
    arrived.notify_all();
    ASSERT_TRUE(arrived.wait_for(lock, std::chrono::seconds(20), [&] { return inside >= 2; }));
    std::memcpy(into.data(), stored.data() + begin, into.size());
  };
  ParallelReader reader(2, progress);
  for (size_t i = 0; i < checksums.size(); ++i) reader.add(chunk(i, meets_another));
  reader.finish();
  EXPECT_TRUE(target == stored);
}

TEST_F(ParallelReading, OneThread_IsTheCallers) {
  make_chunks(3);
  std::set<std::thread::id> seen;
  const ReadBytes noted = [&](int64_t begin, std::span<std::byte> into) {
    seen.insert(std::this_thread::get_id());
    std::memcpy(into.data(), stored.data() + begin, into.size());
  };
  ParallelReader reader(1, progress);
  for (size_t i = 0; i < checksums.size(); ++i) reader.add(chunk(i, noted));
  reader.finish();
  EXPECT_EQ(seen, std::set{std::this_thread::get_id()});
}

TEST_F(ParallelReading, FewChunksAreHeldAtOnce) {
  make_chunks(40);
  ParallelReader reader(2, progress);
  for (size_t i = 0; i < checksums.size(); ++i) {
    reader.add(chunk(i));
    const std::lock_guard lock(mutex);
    EXPECT_LE(i + 1 - let_go, 8u);
  }
  reader.finish();
}

TEST_F(ParallelReading, SmallChunks_WaitForEachOther_AndAreReadInTheEnd) {
  make_chunks(5);
  ParallelReader reader(4, progress);
  for (size_t i = 0; i < checksums.size(); ++i) {
    ChunkRead small = chunk(i);
    small.bytes = 1;
    reader.add(std::move(small));
    EXPECT_EQ(progress.total, 0);
  }
  reader.finish();
  EXPECT_TRUE(target == stored);
}

TEST_F(ParallelReading, Fault_IsThrownOnTheCallersThread_AndLetsAllGo) {
  make_chunks(20);
  checksums[7][2] ^= 1;
  for (const int threads : {1, 4}) {
    let_go = 0;
    expect_error(ErrorCode::kDataLoss, "checkpoint file 'f': block 2 of tensor 'w'", [&] {
      ParallelReader reader(threads, progress);
      for (size_t i = 0; i < checksums.size(); ++i) reader.add(chunk(i));
      reader.finish();
    });
    EXPECT_GE(let_go, 8u);
  }
  EXPECT_EQ(owner_threads, std::set{std::this_thread::get_id()});
}

TEST_F(ParallelReading, FaultOfTheProgress_IsThrown) {
  make_chunks(8);
  progress.fails = true;
  for (const int threads : {1, 3}) {
    ParallelReader reader(threads, progress);
    EXPECT_THROW(
        {
          for (size_t i = 0; i < checksums.size(); ++i) reader.add(chunk(i));
          reader.finish();
        },
        std::runtime_error);
  }
}

TEST_F(ParallelReading, Abandoned_ReadsNoMoreAndLetsAllGo) {
  make_chunks(12);
  {
    ParallelReader reader(3, progress);
    for (size_t i = 0; i < checksums.size(); ++i) reader.add(chunk(i));
  }
  EXPECT_EQ(let_go, checksums.size());
}

}  // namespace
}  // namespace hyper_parallel
