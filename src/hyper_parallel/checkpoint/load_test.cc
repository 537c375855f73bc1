#include "hyper_parallel/checkpoint/load.h"

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/save.h"
#include "tests/support/buffer_planners.h"
#include "tests/support/error_of.h"
#include "tests/support/memory_storage.h"
#include "tests/support/thread_exchange.h"

namespace hyper_parallel {
namespace {

using Strings = std::vector<std::string>;

// A checkpoint of 'w' = "abcdefghijkl" of shape (3, 4) and the values 'lr' and 'step'.
void save_letters(MemoryStorage& storage, const std::string& letters = "abcdefghijkl") {
  BufferSavePlanner planner;
  planner.add({"w", DType::kU8, {3, 4}, {{{0, 0}, {1, 4}}, {{1, 0}, {2, 4}}}}, letters);
  planner.plan.values = {{"lr", 0.5}, {"step", int64_t{7}}};
  MemoryWriter writer(storage);
  SingleExchange alone;
  NoProgress progress;
  save_checkpoint(alone, planner, writer, progress);
}

// The columns of 'w' that a rank of `size` wants.
LoadTarget columns_of(int64_t rank, int64_t size) {
  const Interval columns = chunk_of({0, 4}, size, rank);
  return load_target("w", DType::kU8, {3, 4}, region_of({{0, columns.begin}, {3, columns.size()}}));
}

LoadRequest all_values() { return {{"lr", "step"}, {}}; }

// Loads on every rank of a job. `load` returns the ranks' errors.
class Job {
 public:
  explicit Job(int64_t size) : size_(size), buffers(static_cast<size_t>(size)), plans(static_cast<size_t>(size)) {}

  Strings load(MemoryStorage& storage) {
    return errors_of_ranks(size_, [&](Exchange& exchange) {
      BufferLoadPlanner planner;
      planner.options = request.options;
      for (const LoadTarget& target : targets(exchange.rank())) planner.add(target);
      MemoryReader reader(storage, exchange.rank());
      NoProgress progress;
      const auto rank = static_cast<size_t>(exchange.rank());
      try {
        const CheckpointMetadata metadata =
            load_checkpoint(exchange, planner, reader, requests ? requests(exchange.rank()) : request, progress);
        EXPECT_EQ(planner.finishes, 1);
        EXPECT_EQ(metadata.values().size(), 2U);
      } catch (const Error&) {
        buffers[rank] = planner.buffers;
        throw;
      }
      buffers[rank] = planner.buffers;
      plans[rank] = planner.plans;
    });
  }

 private:
  int64_t size_;

 public:
  std::function<std::vector<LoadTarget>(int64_t)> targets = [this](int64_t rank) {
    return std::vector<LoadTarget>{columns_of(rank, size_)};
  };
  LoadRequest request = all_values();
  std::function<LoadRequest(int64_t)> requests;  // of each rank, if they differ
  std::vector<Strings> buffers;
  std::vector<int> plans;
};

TEST(LoadCheckpoint, EachRank_GetsItsCells) {
  MemoryStorage storage;
  save_letters(storage);
  Job two(2);
  EXPECT_EQ(two.load(storage), Strings(2));
  EXPECT_EQ(two.buffers, (std::vector<Strings>{{"abefij"}, {"cdghkl"}}));
  Job one(1);
  EXPECT_EQ(one.load(storage), Strings(1));
  EXPECT_EQ(one.buffers[0], Strings{"abcdefghijkl"});
  Job six(6);
  EXPECT_EQ(six.load(storage), Strings(6));
  EXPECT_EQ(six.buffers[3], Strings{"dhl"});
  EXPECT_EQ(six.buffers[5], Strings{""});
}

TEST(LoadCheckpoint, Metadata_ComesBackWithTheValues) {
  MemoryStorage storage;
  save_letters(storage);
  run_ranks(2, [&](Exchange& exchange) {
    BufferLoadPlanner planner;
    planner.add(columns_of(exchange.rank(), 2));
    MemoryReader reader(storage, exchange.rank());
    NoProgress progress;
    const CheckpointMetadata metadata = load_checkpoint(exchange, planner, reader, all_values(), progress);
    EXPECT_EQ(*metadata.find_value("step"), Value(int64_t{7}));
    EXPECT_EQ(metadata.save_id(), "0000000000000001");
  });
}

TEST(LoadCheckpoint, OnlyTheCoordinator_ReadsTheMetadata) {
  MemoryStorage storage;
  save_letters(storage);
  std::mutex mutex;
  std::vector<int64_t> readers;
  storage.before = [&](const std::string& method, int64_t rank) {
    const std::scoped_lock lock(mutex);
    if (method == "read_metadata") readers.push_back(rank);
  };
  EXPECT_EQ(Job(4).load(storage), Strings(4));
  EXPECT_EQ(readers, std::vector<int64_t>{0});
}

TEST(LoadCheckpoint, NoCheckpoint_RaisesOnAll) {
  MemoryStorage storage;
  EXPECT_EQ(Job(3).load(storage), Strings(3, "InvalidArgument: there is no checkpoint"));
}

TEST(LoadCheckpoint, BrokenMetadata_RaisesOnAll) {
  MemoryStorage storage;
  storage.metadata = "[]";
  for (const std::string& error : Job(2).load(storage)) EXPECT_EQ(error.substr(0, 19), "DataLoss: .metadata");
}

TEST(LoadCheckpoint, FaultOfOneRanksTarget_RaisesOnAllAndTouchesNothing) {
  MemoryStorage storage;
  save_letters(storage);
  Job job(3);
  job.targets = [](int64_t rank) {
    std::vector<LoadTarget> targets = {columns_of(rank, 3)};
    if (rank == 1) targets.push_back({"c", DType::kU8, {1}, {{{0}, {1}}}});
    return targets;
  };
  EXPECT_EQ(job.load(storage), Strings(3,
                                       "InvalidArgument: planning the load failed on rank 1: the checkpoint does not "
                                       "hold 'c'; entries in allow_missing may be absent and stay as they are"));
  EXPECT_EQ(job.buffers[0], Strings{std::string(6, '\xEE')});
  job.request.options.allow_missing = {"c"};
  EXPECT_EQ(job.load(storage), Strings(3));
  EXPECT_EQ(job.buffers[1], (Strings{"cdghkl", "\xEE"}));
}

TEST(LoadCheckpoint, EntryThatNoRankWants_RaisesUnlessAllowed) {
  MemoryStorage storage;
  save_letters(storage);
  Job job(2);
  job.request.values = {"lr"};
  EXPECT_EQ(job.load(storage), Strings(2,
                                       "InvalidArgument: the checkpoint holds 'step', which no rank loads; entries in "
                                       "allow_extra are left out"));
  EXPECT_EQ(job.buffers[0], Strings{std::string(6, '\xEE')});
  job.targets = [](int64_t) { return std::vector<LoadTarget>(); };
  EXPECT_EQ(job.load(storage), Strings(2,
                                       "InvalidArgument: the checkpoint holds 'w', 'step', which no rank loads; "
                                       "entries in allow_extra are left out"));
  job.request.options.allow_extra = {"s*", "w"};
  EXPECT_EQ(job.load(storage), Strings(2));
}

TEST(LoadCheckpoint, EntriesThatSomeRankWants_AreEnough) {
  MemoryStorage storage;
  save_letters(storage);
  Job job(3);
  job.targets = [](int64_t rank) {
    return rank == 2 ? std::vector<LoadTarget>{columns_of(0, 1)} : std::vector<LoadTarget>();
  };
  job.requests = [](int64_t rank) { return rank == 1 ? all_values() : LoadRequest(); };
  EXPECT_EQ(job.load(storage), Strings(3));
  EXPECT_EQ(job.buffers[2], Strings{"abcdefghijkl"});
}

TEST(LoadCheckpoint, EmptyShareOfATensor_WantsIt) {
  MemoryStorage storage;
  save_letters(storage);
  Job job(1);
  job.targets = [](int64_t) { return std::vector<LoadTarget>{{"w", DType::kU8, {3, 4}, {}}}; };
  EXPECT_EQ(job.load(storage), Strings(1));
}

TEST(LoadCheckpoint, WantedValueThatIsMissingOrATensor_Raises) {
  MemoryStorage storage;
  save_letters(storage);
  Job job(2);
  job.request.values = {"lr", "step", "epoch", "seed"};
  EXPECT_EQ(
      job.load(storage),
      Strings(2,
              "InvalidArgument: planning the load failed on rank 0: the checkpoint does not hold 'epoch', 'seed'; "
              "entries in allow_missing may be absent and stay as they are (and on 1 other rank)"));
  job.request.options.allow_missing = {"epoch", "s*"};
  EXPECT_EQ(job.load(storage), Strings(2));
  job.request.values = {"lr", "step", "w"};
  EXPECT_EQ(job.load(storage),
            Strings(2,
                    "InvalidArgument: planning the load failed on rank 0: 'w' is stored as a tensor, "
                    "but wanted as a value (and on 1 other rank)"));
}

TEST(LoadCheckpoint, FaultWhileReading_RaisesOnAll) {
  MemoryStorage storage;
  save_letters(storage);
  storage.before = [](const std::string& method, int64_t rank) {
    HP_CHECK(method != "read" || rank != 2, kDataLoss, "block 3 does not have its checksum");
  };
  Job job(4);
  EXPECT_EQ(job.load(storage), Strings(4,
                                       "DataLoss: reading the checkpoint failed on rank 2: block 3 does not have its "
                                       "checksum"));
}

TEST(LoadCheckpoint, FileThatIsGone_WhileTheMetadataStays_Raises) {
  MemoryStorage storage;
  save_letters(storage);
  storage.files.clear();
  EXPECT_EQ(Job(2).load(storage), Strings(2,
                                          "DataLoss: a data file of the checkpoint is gone (missed by rank 0), and no "
                                          "newer save has replaced the checkpoint"));
}

// Lets a newer save replace the checkpoint, and remove the old files, each time after the metadata was read.
class Replacements {
 public:
  Replacements(MemoryStorage& storage, int count) : storage_(storage), left_(count) {
    storage.before = [this](const std::string& method, int64_t rank) { before(method, rank); };
  }

 private:
  void before(const std::string& method, int64_t rank) {
    if (method == "read_metadata") is_old_ = true;
    const std::scoped_lock lock(storage_.mutex);
    if (method != "open" || rank != 1 || !is_old_ || left_ == 0) return;
    --left_;
    is_old_ = false;
    MemoryStorage newer;
    newer.begins = storage_.begins++;
    save_letters(newer, std::string(12, static_cast<char>('A' + newer.begins)));
    storage_.files = newer.files;
    storage_.metadata = newer.metadata;
  }

  MemoryStorage& storage_;
  int left_;
  bool is_old_ = false;
};

TEST(LoadCheckpoint, CheckpointThatIsReplacedMeanwhile_LoadsTheNewOneOnAllRanks) {
  for (const int count : {1, 4}) {
    MemoryStorage storage;
    save_letters(storage);
    const Replacements replacements(storage, count);
    Job job(2);
    EXPECT_EQ(job.load(storage), Strings(2));
    const std::string letters(6, static_cast<char>('A' + count));
    EXPECT_EQ(job.buffers, (std::vector<Strings>{{letters}, {letters}}));
    EXPECT_EQ(job.plans, std::vector<int>(2, count + 1));
  }
}

TEST(LoadCheckpoint, CheckpointThatIsReplacedAgainAndAgain_Raises) {
  MemoryStorage storage;
  save_letters(storage);
  const Replacements replacements(storage, 100);
  EXPECT_EQ(Job(2).load(storage),
            Strings(2,
                    "FailedPrecondition: the checkpoint was replaced by a newer save 5 times while "
                    "it was being opened; load it when no save is running"));
}

TEST(LoadCheckpoint, PlanOfAForeignPlanner_IsChecked) {
  class BadPlanner final : public BufferLoadPlanner {
   public:
    LoadPlan build_local_plan(const CheckpointMetadata& metadata) override {
      LoadPlan plan = plan_load(metadata, targets, {});
      spoil(plan.items.at(0));
      return plan;
    }
    std::function<void(ReadItem&)> spoil;
  };
  MemoryStorage storage;
  save_letters(storage);
  const std::vector<std::function<void(ReadItem&)>> faults = {[](ReadItem& item) { item.target = 1; },
                                                              [](ReadItem& item) { item.target = -1; },
                                                              [](ReadItem& item) { item.box = 1; },
                                                              [](ReadItem& item) { item.tensor = 1; },
                                                              [](ReadItem& item) { item.chunk = 2; },
                                                              [](ReadItem& item) { item.chunk = 1; },
                                                              [](ReadItem& item) { item.overlap.sizes[1] = 5; },
                                                              [](ReadItem& item) { item.overlap = Box{}; }};
  for (const auto& fault : faults) {
    BadPlanner planner;
    planner.add(columns_of(0, 1));
    planner.spoil = fault;
    MemoryReader reader(storage, 0);
    SingleExchange alone;
    NoProgress progress;
    const std::string error = error_of([&] { load_checkpoint(alone, planner, reader, all_values(), progress); });
    EXPECT_EQ(error.substr(0, 75), "InvalidArgument: planning the load failed on rank 0: the load plan has an i");
    EXPECT_NE(error.find("that does not lie in a chunk and in a wanted box"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace hyper_parallel
