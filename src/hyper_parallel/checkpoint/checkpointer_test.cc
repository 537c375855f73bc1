#include "hyper_parallel/checkpoint/checkpointer.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "tests/support/buffer_planners.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_error.h"
#include "tests/support/memory_storage.h"
#include "tests/support/thread_exchange.h"

namespace hyper_parallel {
namespace {

using Strings = std::vector<std::string>;
using std::chrono::milliseconds;

// Long enough for a thread that need not wait to have gone on.
constexpr milliseconds kMoment{50};

// Closed until it is opened; holds up a rank's writing.
class Gate {
 public:
  void open() {
    const std::scoped_lock lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    HP_CHECK(opened_.wait_for(lock, std::chrono::seconds(10), [this] { return is_open_; }), kInternal,
             "the gate stayed closed");
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

// A storage that writes down what is called, in order, and whose writers wait at a gate of their rank.
struct GatedStorage {
  explicit GatedStorage(size_t ranks) : gates(ranks) {
    storage.before = [this](const std::string& method, int64_t rank) {
      {
        const std::scoped_lock lock(mutex);
        calls.push_back(method);
      }
      if (method == "write") gates.at(static_cast<size_t>(rank)).pass();
    };
  }

  size_t call_count() {
    const std::scoped_lock lock(mutex);
    return calls.size();
  }

  MemoryStorage storage;
  std::mutex mutex;
  Strings calls;
  std::deque<Gate> gates;
};

// What rank `rank` of `size` saves: its row of 'w' of shape (size, 4), the same 'r' everywhere, and a value.
BufferSavePlanner planner_of(int64_t rank, int64_t size) {
  BufferSavePlanner planner;
  planner.add({"w", DType::kU8, {size, 4}, {{{rank, 0}, {1, 4}}}}, std::string(4, static_cast<char>('a' + rank)));
  planner.add({"r", DType::kU8, {3}, {{{0}, {3}}}}, "rrr");
  planner.plan.values = {{"step", int64_t{7}}};
  planner.may_cache = true;
  return planner;
}

std::shared_ptr<Exchange> shared(Exchange& exchange) { return {std::shared_ptr<void>(), &exchange}; }

std::shared_ptr<AsyncSave> begin_save(Checkpointer& checkpointer, SavePlanner& planner, MemoryStorage& storage) {
  return checkpointer.async_save(planner, std::make_shared<MemoryWriter>(storage), std::make_shared<NoProgress>());
}

std::shared_ptr<AsyncSave> begin_save(Checkpointer& checkpointer, MemoryStorage& storage) {
  const Exchange& exchange = checkpointer.exchange();
  BufferSavePlanner planner = planner_of(exchange.rank(), exchange.size());
  return begin_save(checkpointer, planner, storage);
}

void save_now(Checkpointer& checkpointer, MemoryStorage& storage,
              Checkpointer::Replicas replicas = Checkpointer::Replicas::kTrusted) {
  const Exchange& exchange = checkpointer.exchange();
  BufferSavePlanner planner = planner_of(exchange.rank(), exchange.size());
  MemoryWriter writer(storage);
  NoProgress progress;
  checkpointer.save(planner, writer, progress, replicas);
}

// Loads both tensors whole, and the value.
struct Loaded {
  std::string w;
  std::string r;
  Value step;
};

Loaded load_now(Checkpointer& checkpointer, MemoryStorage& storage, int64_t rows) {
  BufferLoadPlanner planner;
  planner.add({"w", DType::kU8, {rows, 4}, {{{0, 0}, {rows, 4}}}});
  planner.add({"r", DType::kU8, {3}, {{{0}, {3}}}});
  MemoryReader reader(storage, checkpointer.exchange().rank());
  NoProgress progress;
  const CheckpointMetadata metadata = checkpointer.load(planner, reader, {{"step"}, {}}, progress);
  return {planner.buffers[0], planner.buffers[1], *metadata.find_value("step")};
}

// What is in the storage, as a job of one rank loads it.
Loaded content(MemoryStorage& storage, int64_t rows) {
  Checkpointer alone(std::make_shared<SingleExchange>());
  return load_now(alone, storage, rows);
}

Checkpointer lone_checkpointer() { return Checkpointer(std::make_shared<SingleExchange>()); }

TEST(Checkpointer, SaveThenLoad_GivesTheBytesBackOnEveryRank) {
  for (const int64_t size : {1, 2, 3}) {
    MemoryStorage storage;
    run_ranks(size, [&](Exchange& exchange) {
      Checkpointer checkpointer(shared(exchange));
      save_now(checkpointer, storage);
      const Loaded loaded = load_now(checkpointer, storage, size);
      EXPECT_EQ(loaded.w, std::string("aaaabbbbcccc").substr(0, static_cast<size_t>(4 * size)));
      EXPECT_EQ(loaded.r, "rrr");
      EXPECT_EQ(loaded.step, Value(int64_t{7}));
    });
    EXPECT_EQ(storage.publishes, 1);
  }
}

TEST(Checkpointer, Load_FaultOfOneRank_RaisesOnAll) {
  MemoryStorage storage;
  const Strings errors = errors_of_ranks(2, [&](Exchange& exchange) {
    Checkpointer checkpointer(shared(exchange));
    save_now(checkpointer, storage);
    load_now(checkpointer, storage, exchange.rank() == 1 ? 3 : 2);
  });
  EXPECT_EQ(errors, Strings(2,
                            "InvalidArgument: planning the load failed on rank 1: tensor 'w' is stored as U8 (2, 4), "
                            "but wanted as U8 (3, 4); a load never changes a shape"));
}

TEST(AsyncSave, SourceChangedRightAfterTheReturn_IsNotInTheCheckpoint) {
  for (const int64_t size : {1, 3}) {
    GatedStorage gated(static_cast<size_t>(size));
    run_ranks(size, [&](Exchange& exchange) {
      Checkpointer checkpointer(shared(exchange));
      std::optional<BufferSavePlanner> planner = planner_of(exchange.rank(), size);
      const auto save = begin_save(checkpointer, *planner, gated.storage);
      for (std::string& buffer : planner->buffers) buffer.assign(buffer.size(), '!');
      planner.reset();
      EXPECT_FALSE(save->done());
      gated.gates[static_cast<size_t>(exchange.rank())].open();
      save->wait();
      EXPECT_TRUE(save->done());
    });
    const Loaded loaded = content(gated.storage, size);
    EXPECT_EQ(loaded.w, std::string("aaaabbbbcccc").substr(0, static_cast<size_t>(4 * size)));
    EXPECT_EQ(loaded.r, "rrr");
  }
}

TEST(AsyncSave, SnapshotOfTheNextSave_LeavesTheOneUnderWayAlone) {
  GatedStorage gated(1);
  Checkpointer checkpointer = lone_checkpointer();
  const auto first = begin_save(checkpointer, gated.storage);
  std::thread opens([&] {
    std::this_thread::sleep_for(kMoment);
    gated.gates[0].open();
  });
  BufferSavePlanner other = planner_of(0, 1);
  other.buffers = {"ZZZZ", "zzz"};  // copied to where the first snapshot lies
  const auto second = begin_save(checkpointer, other, gated.storage);
  opens.join();
  EXPECT_TRUE(first->done());
  second->wait();
  EXPECT_EQ(gated.storage.files.at("data-0000000000000001-0"), "rrraaaa");
  EXPECT_EQ(gated.storage.files.at("data-0000000000000002-0"), "zzzZZZZ");
}

// While a save is held up, `next` must not begin: it does its calls after all of the first save's.
void expect_next_waits(const std::function<void(Checkpointer&, MemoryStorage&)>& next, const Strings& its_calls) {
  GatedStorage gated(1);
  Checkpointer checkpointer = lone_checkpointer();
  const auto first = begin_save(checkpointer, gated.storage);
  std::thread thread([&] {
    next(checkpointer, gated.storage);
    EXPECT_TRUE(first->done());
  });
  std::this_thread::sleep_for(kMoment);
  EXPECT_LE(gated.call_count(), 2U);
  EXPECT_FALSE(first->done());
  gated.gates[0].open();
  thread.join();
  Strings calls{"begin", "write", "publish"};
  calls.insert(calls.end(), its_calls.begin(), its_calls.end());
  EXPECT_EQ(gated.calls, calls);
}

TEST(AsyncSave, NextSave_WaitsForItsEnd) {
  const Strings a_save{"begin", "write", "publish"};
  expect_next_waits([](Checkpointer& checkpointer, MemoryStorage& storage) { save_now(checkpointer, storage); },
                    a_save);
  expect_next_waits(
      [](Checkpointer& checkpointer, MemoryStorage& storage) { begin_save(checkpointer, storage)->wait(); }, a_save);
}

TEST(AsyncSave, NextLoad_WaitsForItsEnd) {
  expect_next_waits([](Checkpointer& checkpointer,
                       MemoryStorage& storage) { EXPECT_EQ(load_now(checkpointer, storage, 1).w, "aaaa"); },
                    {"read_metadata", "open", "read"});
}

TEST(AsyncSave, FaultWhileWriting_IsThrownByWaitOnEveryRankAgainAndAgain) {
  MemoryStorage storage;
  storage.before = [](const std::string& method, int64_t rank) {
    HP_CHECK(method != "write" || rank != 1, kDataLoss, "no space left");
  };
  const std::string expected = "DataLoss: writing the checkpoint failed on rank 1: no space left";
  run_ranks(3, [&](Exchange& exchange) {
    Checkpointer checkpointer(shared(exchange));
    const auto save = begin_save(checkpointer, storage);
    EXPECT_EQ(error_of([&] { save->wait(); }), expected);
    EXPECT_EQ(error_of([&] { save->wait(); }), expected);
    EXPECT_TRUE(save->done());
    EXPECT_TRUE(save->wait_for(milliseconds(0)));  // asks, throws nothing
  });
  EXPECT_EQ(storage.publishes, 0);
  EXPECT_EQ(storage.abandons, 1);
}

TEST(AsyncSave, FaultOfAnEarlierSave_LeavesTheNextOneRight) {
  MemoryStorage storage;
  std::atomic<bool> is_full = true;
  storage.before = [&](const std::string& method, int64_t rank) {
    HP_CHECK(!is_full || method != "write" || rank != 0, kDataLoss, "no space left");
  };
  run_ranks(2, [&](Exchange& exchange) {
    Checkpointer checkpointer(shared(exchange));
    begin_save(checkpointer, storage)->wait_for(std::chrono::seconds(10));
    agree(exchange, "making space", [&] { is_full = false; });
    begin_save(checkpointer, storage)->wait();
  });
  EXPECT_EQ(content(storage, 2).w, "aaaabbbb");
}

TEST(AsyncSave, WaitFor_ReturnsWhetherItHasEnded) {
  GatedStorage gated(1);
  Checkpointer checkpointer = lone_checkpointer();
  const auto save = begin_save(checkpointer, gated.storage);
  EXPECT_FALSE(save->wait_for(milliseconds(-1)));
  EXPECT_FALSE(save->wait_for(milliseconds(5)));
  EXPECT_FALSE(save->done());
  std::thread opens([&] {
    std::this_thread::sleep_for(kMoment);
    gated.gates[0].open();
  });
  EXPECT_TRUE(save->wait_for(milliseconds::max()));
  opens.join();
  EXPECT_TRUE(save->done());
  save->wait();
}

TEST(AsyncSave, SnapshotThatFailsOnOneRank_RaisesOnAllInWait) {
  class UnreadablePlanner final : public BufferSavePlanner {
   public:
    HeldBytes get_data(const WriteItem&) override { raise(ErrorCode::kFailedPrecondition, "the device is gone"); }
  };
  MemoryStorage storage;
  run_ranks(3, [&](Exchange& exchange) {
    Checkpointer checkpointer(shared(exchange));
    BufferSavePlanner good = planner_of(exchange.rank(), 3);
    UnreadablePlanner bad;
    static_cast<BufferSavePlanner&>(bad) = good;
    const auto save = begin_save(checkpointer, exchange.rank() == 1 ? bad : good, storage);
    EXPECT_EQ(error_of([&] { save->wait(); }),
              "FailedPrecondition: writing the checkpoint failed on rank 1: the device is gone");
  });
  EXPECT_EQ(storage.publishes, 0);
  EXPECT_EQ(storage.abandons, 1);
}

TEST(AsyncSave, FaultWhilePlanning_IsThrownAtOnceOnEveryRankAndNothingIsUnderWay) {
  MemoryStorage storage;
  run_ranks(2, [&](Exchange& exchange) {
    Checkpointer checkpointer(shared(exchange));
    BufferSavePlanner planner = planner_of(exchange.rank(), exchange.rank() == 0 ? 2 : 3);  // shapes differ
    const std::string error = error_of([&] { begin_save(checkpointer, planner, storage); });
    EXPECT_EQ(error.substr(0, 31), "InvalidArgument: tensor 'w' is ") << error;
    save_now(checkpointer, storage);
  });
  EXPECT_EQ(storage.begins, 1);
  EXPECT_EQ(content(storage, 2).w, "aaaabbbb");
}

// For its lifetime no thread of this process can start: the stack it would get is larger than the address space.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &usual_stack_);
    pthread_attr_destroy(&attributes);
    set_stack(size_t{1} << 47);
  }
  ~NoMoreThreads() { set_stack(usual_stack_); }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  static void set_stack(size_t bytes) {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }

  size_t usual_stack_ = 0;
};

TEST(AsyncSave, NoThreadToBeHad_SavesInTheForeground) {
  MemoryStorage storage;
  Checkpointer checkpointer = lone_checkpointer();
  {
    const NoMoreThreads limit;
    EXPECT_THROW(std::thread([] {}).join(), std::system_error);
    const auto save = begin_save(checkpointer, storage);
    EXPECT_TRUE(save->done());
    save->wait();
    storage.before = [](const std::string& method, int64_t) {
      HP_CHECK(method != "write", kDataLoss, "no space left");
    };
    const auto fails = begin_save(checkpointer, storage);
    EXPECT_EQ(error_of([&] { fails->wait(); }), "DataLoss: writing the checkpoint failed on rank 0: no space left");
  }
  EXPECT_EQ(content(storage, 1).w, "aaaa");
}

TEST(AsyncSave, NobodyKeepsTheHandle_TheSaveEndsAllTheSame) {
  GatedStorage gated(1);
  {
    Checkpointer checkpointer = lone_checkpointer();
    begin_save(checkpointer, gated.storage);
    EXPECT_EQ(gated.storage.publishes, 0);
    gated.gates[0].open();
    EXPECT_EQ(load_now(checkpointer, gated.storage, 1).w, "aaaa");
  }
  EXPECT_EQ(gated.storage.publishes, 1);
}

TEST(Checkpointer, GoingAway_WaitsForTheSaveUnderWay) {
  GatedStorage gated(1);
  std::shared_ptr<AsyncSave> save;
  std::thread opens([&] {
    std::this_thread::sleep_for(kMoment);
    gated.gates[0].open();
  });
  {
    Checkpointer checkpointer = lone_checkpointer();
    save = begin_save(checkpointer, gated.storage);
  }
  EXPECT_TRUE(save->done());
  EXPECT_EQ(gated.storage.publishes, 1);
  opens.join();
  save->wait();  // the handle may be kept
}

TEST(Checkpointer, EqualPlans_HitTheCacheInForegroundAndBackground) {
  MemoryStorage storage;
  run_ranks(2, [&](Exchange& exchange) {
    Checkpointer checkpointer(shared(exchange));
    save_now(checkpointer, storage);
    EXPECT_EQ(checkpointer.plan_cache().hits(), 0);
    BufferSavePlanner planner = planner_of(exchange.rank(), 2);
    planner.buffers[0] = exchange.rank() == 0 ? "1234" : "5678";
    begin_save(checkpointer, planner, storage)->wait();
    EXPECT_EQ(checkpointer.plan_cache().hits(), 1);
    save_now(checkpointer, storage, Checkpointer::Replicas::kCompared);
    EXPECT_EQ(checkpointer.plan_cache().hits(), 2);
    begin_save(checkpointer, planner, storage)->wait();
    EXPECT_EQ(checkpointer.plan_cache().hits(), 3);
  });
  EXPECT_EQ(content(storage, 2).w, "12345678");
}

TEST(Checkpointer, UnequalReplicas_RaiseOnAllIfComparedAndPassIfTrusted) {
  MemoryStorage storage;
  const std::string expected =
      "FailedPrecondition: ranks 0 and 1 differ in the cells (0,)+(3,) of U8 tensor 'r' of shape (3,), of which both "
      "are to hold the same; saving would keep one of them";
  run_ranks(2, [&](Exchange& exchange) {
    Checkpointer checkpointer(shared(exchange));
    BufferSavePlanner planner = planner_of(exchange.rank(), 2);
    if (exchange.rank() == 1) planner.buffers[1] = "rrx";
    const auto writer = std::make_shared<MemoryWriter>(storage);
    const auto progress = std::make_shared<NoProgress>();
    const auto compared = Checkpointer::Replicas::kCompared;
    EXPECT_EQ(error_of([&] { checkpointer.save(planner, *writer, *progress, compared); }), expected);
    EXPECT_EQ(error_of([&] { checkpointer.async_save(planner, writer, progress, compared); }), expected);
    agree(exchange, "looking at the storage", [&] { EXPECT_EQ(storage.begins, 0); });
    checkpointer.save(planner, *writer, *progress);
  });
  EXPECT_EQ(storage.publishes, 1);
}

TEST(Checkpointer, SavesOfManyThreads_GoOneAfterTheOther) {
  GatedStorage gated(1);
  gated.gates[0].open();
  Checkpointer checkpointer = lone_checkpointer();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      if (i % 2 == 0) {
        save_now(checkpointer, gated.storage);
      } else {
        begin_save(checkpointer, gated.storage)->wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Strings expected;
  for (int i = 0; i < 4; ++i) expected.insert(expected.end(), {"begin", "write", "publish"});
  EXPECT_EQ(gated.calls, expected);
}

/// A progress that comes for the checkpointer that tells it.
struct Reentrant final : Progress {
  explicit Reentrant(Checkpointer& of_save) : checkpointer(of_save) {}
  void start(int64_t) override {
    BufferSavePlanner planner;
    MemoryStorage storage;
    MemoryWriter writer(storage);
    NoProgress quiet;
    checkpointer.save(planner, writer, quiet);
  }
  void advance(int64_t) override {}
  void finish() override {}
  Checkpointer& checkpointer;
};

TEST(Checkpointer, CalledFromWithinItsOwnSave_RaisesInsteadOfWaitingForItself) {
  Checkpointer checkpointer(std::make_shared<SingleExchange>());
  BufferSavePlanner planner;
  planner.add({"w", DType::kU8, {3}, {{{0}, {3}}}}, "abc");
  MemoryStorage storage;
  MemoryWriter writer(storage);
  Reentrant progress(checkpointer);
  expect_error(ErrorCode::kFailedPrecondition, "was called from within another of the same ranks",
               [&] { checkpointer.save(planner, writer, progress); });
  const auto save = checkpointer.async_save(planner, std::make_shared<MemoryWriter>(storage),
                                            std::make_shared<Reentrant>(checkpointer));
  expect_error(ErrorCode::kFailedPrecondition, "was called from within another of the same ranks",
               [&] { save->wait(); });
}

}  // namespace
}  // namespace hyper_parallel
