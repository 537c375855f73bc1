#include "hyper_parallel/checkpoint/save.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "tests/support/buffer_planners.h"
#include "tests/support/error_of.h"
#include "tests/support/memory_storage.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/thread_exchange.h"

namespace hyper_parallel {
namespace {

using Strings = std::vector<std::string>;

// The bytes first, first + 1, ..
std::string counted(int64_t first, int64_t count) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) bytes += static_cast<char>(first + i);
  return bytes;
}

// What rank `rank` of `size` saves: rows of 'w' of shape (size, 4), the same 'r' everywhere, and values.
BufferSavePlanner planner_of(int64_t rank, int64_t size) {
  BufferSavePlanner planner;
  const Box row{{rank, 0}, {1, 4}};
  planner.add({"w", DType::kU8, {size, 4}, {row}}, counted(4 * rank, 4));
  planner.add({"r", DType::kU8, {3}, {{{0}, {3}}}}, "abc");
  planner.plan.values = {{"step", int64_t{7}}, {str_cat("of rank ", rank), rank}};
  planner.plan.structure =
      ValueDict{{{"w", "w"}, {"r", "r"}, {"step", "step"}, {str_cat("of rank ", rank), str_cat("of rank ", rank)}}};
  return planner;
}

Strings save_errors(MemoryStorage& storage, int64_t size,
                    const std::function<BufferSavePlanner(int64_t rank)>& make_planner) {
  return errors_of_ranks(size, [&](Exchange& exchange) {
    BufferSavePlanner planner = make_planner(exchange.rank());
    MemoryWriter writer(storage);
    NoProgress progress;
    save_checkpoint(exchange, planner, writer, progress);
  });
}

Strings save_errors(MemoryStorage& storage, int64_t size) {
  return save_errors(storage, size, [&](int64_t rank) { return planner_of(rank, size); });
}

CheckpointMetadata published(const MemoryStorage& storage) {
  return parse_metadata(bytes_of(storage.metadata), "test");
}

// The stored bytes of a tensor whose chunks are rows, one after the other.
std::string stored_bytes(const MemoryStorage& storage, const std::string& name) {
  const CheckpointMetadata metadata = published(storage);
  const StoredTensor* tensor = metadata.find_tensor(name);
  std::string bytes;
  for (int64_t row = 0; row < tensor->shape()[0]; ++row) {
    for (int64_t number = 0; number < tensor->chunk_count(); ++number) {
      const StoredChunk chunk = tensor->chunk(number);
      if (chunk.box.offsets[0] != row) continue;
      bytes += storage.files.at(metadata.files()[static_cast<size_t>(chunk.file)].name)
                   .substr(static_cast<size_t>(chunk.begin), static_cast<size_t>(chunk.bytes));
    }
  }
  return bytes;
}

TEST(SaveCheckpoint, RanksShares_BecomeOneCheckpoint) {
  for (const int64_t size : {1, 2, 5}) {
    MemoryStorage storage;
    EXPECT_EQ(save_errors(storage, size), Strings(static_cast<size_t>(size)));
    EXPECT_EQ(storage.begins, 1);
    EXPECT_EQ(storage.publishes, 1);
    EXPECT_EQ(storage.abandons, 0);
    EXPECT_EQ(stored_bytes(storage, "w"), counted(0, 4 * size));
    EXPECT_EQ(stored_bytes(storage, "r"), "abc");
    EXPECT_EQ(published(storage).find_tensor("r")->chunk_count(), 1);  // of all replicas one
    EXPECT_EQ(published(storage).save_id(), "0000000000000001");
    EXPECT_EQ(published(storage).values().size(), static_cast<size_t>(size) + 1);
    EXPECT_EQ(*published(storage).find_value("step"), Value(int64_t{7}));
    EXPECT_EQ(*published(storage).find_value(str_cat("of rank ", size - 1)), Value(size - 1));
    const Value structure = published(storage).structure();
    EXPECT_EQ(std::get<ValueDict>(structure.variant()).items.size(), static_cast<size_t>(size) + 3);
  }
}

TEST(SaveCheckpoint, EmptyRank_WritesNothingAndEmptyTensorIsStored) {
  MemoryStorage storage;
  EXPECT_EQ(save_errors(storage, 3,
                        [](int64_t rank) {
                          BufferSavePlanner planner;
                          planner.add({"e", DType::kF32, {0, 4}, {}}, "");
                          const std::vector<Box> all = {{{0}, {5}}};
                          planner.add({"w", DType::kU8, {5}, rank == 1 ? all : std::vector<Box>()},
                                      rank == 1 ? "hello" : "");
                          return planner;
                        }),
            Strings(3));
  EXPECT_EQ(storage.files.size(), 1U);
  EXPECT_EQ(stored_bytes(storage, "w"), "hello");
  ASSERT_NE(published(storage).find_tensor("e"), nullptr);
  EXPECT_EQ(published(storage).find_tensor("e")->shape(), (Dims{0, 4}));
}

TEST(SaveCheckpoint, NothingAtAll_IsACheckpoint) {
  MemoryStorage storage;
  EXPECT_EQ(save_errors(storage, 2, [](int64_t) { return BufferSavePlanner(); }), Strings(2));
  EXPECT_TRUE(published(storage).tensors().empty());
  EXPECT_TRUE(published(storage).values().empty());
}

TEST(SaveCheckpoint, Data_IsAskedForOncePerItem) {
  MemoryStorage storage;
  BufferSavePlanner planner = planner_of(0, 1);
  SingleExchange alone;
  MemoryWriter writer(storage);
  NoProgress progress;
  save_checkpoint(alone, planner, writer, progress);
  EXPECT_EQ(planner.data_calls, 2);
}

TEST(SaveCheckpoint, FaultOfAPlanner_RaisesOnAllBeforeTheStorageIsOpened) {
  class FailingPlanner final : public BufferSavePlanner {
   public:
    SavePlan build_local_plan() override { raise(ErrorCode::kType, "'x' is a set"); }
  };
  MemoryStorage storage;
  const Strings errors = errors_of_ranks(3, [&](Exchange& exchange) {
    BufferSavePlanner good = planner_of(exchange.rank(), 3);
    FailingPlanner bad;
    MemoryWriter writer(storage);
    NoProgress progress;
    save_checkpoint(exchange, exchange.rank() == 2 ? static_cast<SavePlanner&>(bad) : good, writer, progress);
  });
  EXPECT_EQ(errors, Strings(3, "Type: planning the save failed on rank 2: 'x' is a set"));
  EXPECT_EQ(storage.begins, 0);
  EXPECT_EQ(storage.abandons, 0);
}

TEST(SaveCheckpoint, PlansThatDoNotFit_RaiseOnAllBeforeTheStorageIsOpened) {
  MemoryStorage storage;
  const Strings errors = save_errors(storage, 2, [](int64_t rank) { return planner_of(rank, rank == 0 ? 2 : 3); });
  EXPECT_EQ(errors, Strings(2,
                            "InvalidArgument: tensor 'w' is U8 (2, 4) on rank 0 but U8 (3, 4) on rank 1; dtype and "
                            "shape must be the same on all ranks"));
  EXPECT_EQ(storage.begins, 0);
}

TEST(SaveCheckpoint, ValueWithoutText_RaisesOnAllBeforeTheStorageIsOpened) {
  MemoryStorage storage;
  const Strings errors = save_errors(storage, 2, [](int64_t rank) {
    BufferSavePlanner planner = planner_of(rank, 2);
    planner.plan.values.push_back({"odd", std::string("\xFF")});
    return planner;
  });
  EXPECT_EQ(errors[0].substr(0, 16), "InvalidArgument:");
  EXPECT_NE(errors[0].find("'odd'"), std::string::npos) << errors[0];
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(storage.begins, 0);
}

// What happens if a storage's method fails on a rank.
Strings errors_if_storage_fails(MemoryStorage& storage, const std::string& method, int64_t rank) {
  storage.before = [=](const std::string& called, int64_t by) {
    HP_CHECK(called != method || by != rank, kDataLoss, "no space left");
  };
  return save_errors(storage, 3);
}

TEST(SaveCheckpoint, StorageThatDoesNotOpen_RaisesOnAll) {
  MemoryStorage storage;
  EXPECT_EQ(errors_if_storage_fails(storage, "begin", 0), Strings(3, "DataLoss: no space left"));
  EXPECT_EQ(storage.abandons, 0);  // nothing was begun
}

TEST(SaveCheckpoint, FaultWhileWriting_RaisesOnAllAndAbandonsOnce) {
  for (const int64_t rank : {0, 2}) {
    MemoryStorage storage;
    storage.metadata = "as before";
    EXPECT_EQ(errors_if_storage_fails(storage, "write", rank),
              Strings(3, str_cat("DataLoss: writing the checkpoint failed on rank ", rank, ": no space left")));
    EXPECT_EQ(storage.abandons, 1);
    EXPECT_EQ(storage.publishes, 0);
    EXPECT_EQ(storage.metadata, "as before");
  }
}

TEST(SaveCheckpoint, FaultWhilePublishing_RaisesOnAllAndIsThePublishersToCleanUp) {
  MemoryStorage storage;
  EXPECT_EQ(errors_if_storage_fails(storage, "publish", 0), Strings(3, "DataLoss: no space left"));
  EXPECT_EQ(storage.abandons, 0);
}

TEST(SaveCheckpoint, MetadataThatCannotBeMade_IsNotPublishedAndAbandonsOnce) {
  class ShortFileWriter final : public StorageWriter {
   public:
    explicit ShortFileWriter(MemoryStorage& storage) : writer_(storage) {}
    std::string begin() override { return writer_.begin(); }
    CheckpointParts write(const std::string& id, int64_t rank, const SavePlan& plan, SavePlanner& planner,
                          Progress& progress) override {
      CheckpointParts parts = writer_.write(id, rank, plan, planner, progress);
      parts.files.at(0).bytes = 1;
      return parts;
    }
    void publish(const CheckpointMetadata& metadata) override { writer_.publish(metadata); }
    void abandon() noexcept override { writer_.abandon(); }

   private:
    MemoryWriter writer_;
  };
  MemoryStorage storage;
  SingleExchange alone;
  BufferSavePlanner planner = planner_of(0, 1);
  ShortFileWriter writer(storage);
  NoProgress progress;
  EXPECT_NE(error_of([&] { save_checkpoint(alone, planner, writer, progress); }).find("has 1"), std::string::npos);
  EXPECT_EQ(storage.abandons, 1);
  EXPECT_EQ(storage.publishes, 0);
}

TEST(SaveCheckpoint, MessageOfAKindThatIsNone_IsAnInternalError) {
  // Another first byte behind a message's step and outcome, or behind an answer's outcome.
  class Garbling final : public Exchange {
   public:
    explicit Garbling(bool answers) : answers_(answers) {}
    int64_t rank() const override { return 0; }
    int64_t size() const override { return 1; }
    std::vector<std::string> gather(std::string message) override {
      if (!answers_) message.at(message.find('\n') + 2) = 9;
      return {message};
    }
    std::string scatter(std::vector<std::string> messages) override {
      if (answers_) messages.at(0).at(1) = 9;
      return messages.at(0);
    }

   private:
    bool answers_;
  };
  for (const auto& [answers, last] : {std::pair<bool, int>{false, 1}, std::pair<bool, int>{true, 2}}) {
    MemoryStorage storage;
    Garbling exchange(answers);
    BufferSavePlanner planner = planner_of(0, 1);
    MemoryWriter writer(storage);
    EXPECT_EQ(error_of([&] { prepare_save(exchange, planner, writer, nullptr); }),
              str_cat("Internal: a message between the ranks of a save is of kind 9, but the last kind is ", last));
    EXPECT_EQ(storage.abandons, storage.begins);
  }
}

TEST(SaveCheckpoint, RankThatDiesWhileWriting_AbandonsOnce) {
  MemoryStorage storage;
  ThreadJob job(2, std::chrono::milliseconds(100));
  const Strings errors = errors_of_ranks(job, [&](Exchange& exchange) {
    BufferSavePlanner planner = planner_of(exchange.rank(), 2);
    MemoryWriter writer(storage);
    NoProgress progress;
    const PreparedSave save = prepare_save(exchange, planner, writer, nullptr);
    if (exchange.rank() == 0) complete_save(exchange, save, planner, writer, progress);
  });
  EXPECT_EQ(errors, (Strings{"FailedPrecondition: rank 1 did not come within 100 ms", ""}));
  EXPECT_EQ(storage.abandons, 1);
}

TEST(SaveCheckpoint, StorageThatWritesSomethingElse_RaisesAndAbandons) {
  class OtherWriter final : public StorageWriter {
   public:
    explicit OtherWriter(MemoryStorage& storage) : writer_(storage) {}
    std::string begin() override { return writer_.begin(); }
    CheckpointParts write(const std::string& id, int64_t rank, const SavePlan& plan, SavePlanner& planner,
                          Progress& progress) override {
      CheckpointParts parts = writer_.write(id, rank, plan, planner, progress);
      parts.tensors.pop_back();
      return parts;
    }
    void publish(const CheckpointMetadata& metadata) override { writer_.publish(metadata); }
    void abandon() noexcept override { writer_.abandon(); }

   private:
    MemoryWriter writer_;
  };
  MemoryStorage storage;
  SingleExchange alone;
  BufferSavePlanner planner = planner_of(0, 1);
  OtherWriter writer(storage);
  NoProgress progress;
  EXPECT_EQ(error_of([&] { save_checkpoint(alone, planner, writer, progress); }),
            "Internal: writing the checkpoint failed on rank 0: the storage did not write tensor 'w'");
  EXPECT_EQ(storage.abandons, 1);
  EXPECT_EQ(storage.publishes, 0);
}

TEST(SaveCheckpoint, GlobalPlanForTooFewRanks_RaisesOnAll) {
  class ShortPlanner final : public BufferSavePlanner {
   public:
    GlobalSavePlan build_global_plan(const std::vector<SavePlan>&) override {
      return {std::vector<SavePlan>(1), {}, {}};
    }
  };
  MemoryStorage storage;
  EXPECT_EQ(errors_of_ranks(2,
                            [&](Exchange& exchange) {
                              ShortPlanner planner;
                              MemoryWriter writer(storage);
                              NoProgress progress;
                              save_checkpoint(exchange, planner, writer, progress);
                            }),
            Strings(2, "InvalidArgument: build_global_plan gave work to 1 ranks of 2; it must give a plan for each"));
  EXPECT_EQ(storage.begins, 0);
}

// Saves on 2 ranks with a cache each, again and again; `change` may alter a rank's planner first.
class CachedSaves {
 public:
  using Change = std::function<void(int64_t rank, BufferSavePlanner& planner)>;

  void save(const Change& change = [](int64_t, BufferSavePlanner&) {}) {
    run_ranks(2, [&](Exchange& exchange) {
      BufferSavePlanner planner = planner_of(exchange.rank(), 2);
      planner.may_cache = true;
      change(exchange.rank(), planner);
      MemoryWriter writer(storage);
      NoProgress progress;
      save_checkpoint(exchange, planner, writer, progress, caches[static_cast<size_t>(exchange.rank())].get());
    });
  }

  std::vector<int64_t> hits() const { return {caches[0]->hits(), caches[1]->hits()}; }

  MemoryStorage storage;
  std::vector<std::unique_ptr<SavePlanCache>> caches = [] {
    std::vector<std::unique_ptr<SavePlanCache>> made;
    for (int rank = 0; rank < 2; ++rank) made.push_back(std::make_unique<SavePlanCache>());
    return made;
  }();
};

using Hits = std::vector<int64_t>;

TEST(SavePlanCache, EqualPlans_AreUsedAgainAndGiveTheSameCheckpoint) {
  CachedSaves saves;
  saves.save();
  EXPECT_EQ(saves.hits(), (Hits{0, 0}));
  const CheckpointMetadata first = published(saves.storage);
  saves.save([](int64_t, BufferSavePlanner& planner) { planner.buffers[0] = "WXYZ"; });
  saves.save([](int64_t rank, BufferSavePlanner& planner) { planner.buffers[0] = rank == 0 ? "abcd" : "efgh"; });
  EXPECT_EQ(saves.hits(), (Hits{2, 2}));
  const CheckpointMetadata last = published(saves.storage);
  EXPECT_EQ(last.save_id(), "0000000000000003");
  EXPECT_EQ(last.values(), first.values());
  EXPECT_EQ(last.structure(), first.structure());
  EXPECT_EQ(stored_bytes(saves.storage, "w"), "abcdefgh");  // bytes are never kept
}

TEST(SavePlanCache, Values_AreNew) {
  CachedSaves saves;
  saves.save();
  saves.save([](int64_t rank, BufferSavePlanner& planner) { planner.plan.values[0].value = 100 + rank; });
  EXPECT_EQ(saves.hits(), (Hits{1, 1}));
  EXPECT_EQ(*published(saves.storage).find_value("step"), Value(int64_t{100}));
  EXPECT_EQ(*published(saves.storage).find_value("of rank 1"), Value(int64_t{1}));
}

TEST(SavePlanCache, BadValueOnAHit_RaisesBeforeTheStorageIsOpened) {
  CachedSaves saves;
  saves.save();
  EXPECT_NE(
      error_of([&] {
        saves.save([](int64_t, BufferSavePlanner& planner) { planner.plan.values[0].value = std::string("\xFF"); });
      }).find("InvalidArgument: "),
      std::string::npos);
  EXPECT_EQ(saves.storage.begins, 1);
}

TEST(SavePlanCache, ChangedPlanOnOneRank_IsPlannedAnew) {
  CachedSaves saves;
  const auto flat = [](int64_t, BufferSavePlanner& planner) { planner.plan.structure = Value(); };
  const auto with_more = [&](int64_t rank, BufferSavePlanner& planner) {
    flat(rank, planner);
    if (rank == 1) planner.add({"new", DType::kU8, {1}, {{{0}, {1}}}}, "n");
  };
  saves.save(flat);
  saves.save(with_more);
  EXPECT_EQ(saves.hits(), (Hits{0, 0}));
  EXPECT_EQ(stored_bytes(saves.storage, "new"), "n");
  EXPECT_EQ(stored_bytes(saves.storage, "w"), counted(0, 8));
  saves.save(with_more);
  EXPECT_EQ(saves.hits(), (Hits{1, 1}));
  saves.save([&](int64_t rank, BufferSavePlanner& planner) {
    flat(rank, planner);
    if (rank == 0) planner.plan.values.push_back({"more", true});  // another name is another plan
  });
  EXPECT_EQ(saves.hits(), (Hits{1, 1}));
  EXPECT_EQ(*published(saves.storage).find_value("more"), Value(true));
  EXPECT_EQ(published(saves.storage).find_tensor("new"), nullptr);
}

TEST(SavePlanCache, PlannerOfOneRankThatForbidsIt_TurnsItOffForAll) {
  CachedSaves saves;
  const auto forbid = [](int64_t rank, BufferSavePlanner& planner) { planner.may_cache = rank == 0; };
  saves.save(forbid);
  saves.save(forbid);
  saves.save();  // nothing was kept
  EXPECT_EQ(saves.hits(), (Hits{0, 0}));
  saves.save();
  EXPECT_EQ(saves.hits(), (Hits{1, 1}));
}

TEST(SavePlanCache, CacheThatIsNewOnOneRank_IsNoFault) {
  for (const size_t rank : {0U, 1U}) {
    CachedSaves saves;
    saves.save();
    saves.caches[rank] = std::make_unique<SavePlanCache>();
    saves.save();
    EXPECT_EQ(saves.hits(), (Hits{0, 0}));
    EXPECT_EQ(stored_bytes(saves.storage, "w"), counted(0, 8));
    EXPECT_EQ(saves.storage.begins, 2);
    saves.save();
    EXPECT_EQ(saves.hits(), (Hits{1, 1}));
  }
}

TEST(SavePlanCache, RankWithoutACache_TurnsItOffForAll) {
  CachedSaves saves;
  std::unique_ptr<SavePlanCache> kept = std::move(saves.caches[1]);
  saves.save();
  saves.save();
  EXPECT_EQ(saves.caches[0]->hits(), 0);
}

TEST(SavePlanCache, FailedSave_LeavesTheNextOneRight) {
  CachedSaves saves;
  saves.save();
  saves.storage.before = [](const std::string& method, int64_t) {
    HP_CHECK(method != "begin", kFailedPrecondition, "another save holds the lock");
  };
  EXPECT_NE(error_of([&] { saves.save(); }).find("another save holds the lock"), std::string::npos);
  saves.storage.before = [](const std::string&, int64_t) {};
  saves.save();
  EXPECT_EQ(saves.hits(), (Hits{1, 1}));
  EXPECT_EQ(stored_bytes(saves.storage, "w"), counted(0, 8));
}

TEST(SavePlanCache, PlannerThatMakesValuesOfItsOwn_IsAskedEachTime) {
  class Stamping final : public BufferSavePlanner {
   public:
    GlobalSavePlan build_global_plan(const std::vector<SavePlan>& plans) override {
      GlobalSavePlan global = unite_save_plans(plans);
      global.values.push_back({"stamp", stamp});
      return global;
    }
    int64_t stamp = 0;
  };
  MemoryStorage storage;
  SavePlanCache cache;
  SingleExchange alone;
  NoProgress progress;
  for (const int64_t stamp : {1, 2}) {
    Stamping planner;
    planner.may_cache = true;
    planner.stamp = stamp;
    MemoryWriter writer(storage);
    save_checkpoint(alone, planner, writer, progress, &cache);
    EXPECT_EQ(*published(storage).find_value("stamp"), Value(stamp));
  }
  EXPECT_EQ(cache.hits(), 0);
}

}  // namespace
}  // namespace hyper_parallel
