// Save and load between ranks: every layout to every other on other rank counts, background saves, faults.

#include "hyper_parallel/torch/checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "hyper_parallel/torch/group_exchange.h"
#include "tests/support/temporary_folder.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

using Strings = std::vector<std::string>;

// How a tensor lies on the ranks of a job; without placements it is a plain tensor on each.
struct Place {
  int ranks;
  DeviceMesh mesh;
  std::string placements;
};

std::string text_of(const Place& place) {
  return str_cat(to_string(place.mesh), " of ", place.ranks, ": ", place.placements);
}

// For shape (5, 3, 2): a prefix of the shape has 5, 15 or 30 cells to deal.
std::vector<Place> all_places() {
  std::vector<Place> places;
  const auto add = [&](int ranks, const DeviceMesh& mesh, const Strings& placements) {
    for (const std::string& text : placements) places.push_back({ranks, mesh, text});
  };
  add(1, DeviceMesh({1}), {"", "S(1)", "RaggedShard((0, 1), (15,))"});
  add(2, DeviceMesh({2}),
      {"", "R", "S(0)", "S(1)", "RaggedShard((0,), (0, 5))", "RaggedShard((0, 1), (4, 11))",
       "RaggedShard((0, 1, 2), (7, 23))"});
  add(4, DeviceMesh({4}), {"S(0)", "S(2)", "RaggedShard((0, 1), (4, 0, 11, 0))"});
  add(4, DeviceMesh({2, 2}),
      {"S(0), S(0)", "S(1), S(0)", "R, S(1)", "R, RaggedShard((0,), (2, 3))", "RaggedShard((0, 1, 2), (1, 29)), R"});
  add(4, DeviceMesh({2}, {}, {3, 1}), {"S(0)", "RaggedShard((0, 1), (8, 7))"});  // ranks 0 and 2 are outside
  return places;
}

// `whole`, or what the rank holds of it, in storage of its own.
StateEntry entry_of(const at::Tensor& whole, const Place& place, const GroupPtr& group) {
  if (place.placements.empty()) return whole.clone();
  return laid_out(whole, MeshCommunicator(group, place.mesh), place.placements);
}

const at::Tensor& local_of(const StateEntry& entry) {
  const auto* distributed = std::get_if<DTensor>(&entry);
  return distributed != nullptr ? distributed->local() : std::get<at::Tensor>(entry);
}

Checkpointer checkpointer_of(const ThreadRank& self) {
  return Checkpointer(std::make_shared<GroupExchange>(self.group));
}

// What each of `size` ranks throws.
Strings errors(int size, const std::function<void(const ThreadRank&)>& fails) {
  Strings texts(static_cast<size_t>(size));
  run_ranks(size,
            [&](const ThreadRank& self) { texts[static_cast<size_t>(self.rank)] = error_of([&] { fails(self); }); });
  return texts;
}

// Names and contents of the files in `directory`.
std::map<std::string, std::string> files_in(const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& item : std::filesystem::directory_iterator(directory)) {
    files[item.path().filename().string()] = read_file(item.path());
  }
  return files;
}

size_t data_files_in(const std::filesystem::path& directory) {
  size_t count = 0;
  for (const auto& [name, content] : files_in(directory)) count += name.starts_with("data-") ? 1U : 0U;
  return count;
}

void save_place(const at::Tensor& whole, const Place& place, const std::filesystem::path& directory) {
  run_ranks(place.ranks, [&](const ThreadRank& self) {
    Checkpointer checkpointer = checkpointer_of(self);
    save({{"w", entry_of(whole, place, self.group)}, {"step", Value(int64_t{12})}}, directory, checkpointer);
  });
}

// Loads into each of the places and compares, with a job for each number of ranks.
void expect_loads(const at::Tensor& whole, const std::vector<Place>& places, const std::filesystem::path& directory) {
  for (const int ranks : {1, 2, 4}) {
    if (std::ranges::none_of(places, [&](const Place& place) { return place.ranks == ranks; })) continue;
    run_ranks(ranks, [&](const ThreadRank& self) {
      Checkpointer checkpointer = checkpointer_of(self);
      for (const Place& place : places) {
        if (place.ranks != ranks) continue;
        SCOPED_TRACE(str_cat("into ", text_of(place), ", rank ", self.rank));
        StateDict state = {{"w", entry_of(at::full_like(whole, -1), place, self.group)}, {"step", Value()}};
        load(state, directory, checkpointer);
        expect_equal(local_of(state.at("w")), local_of(entry_of(whole, place, self.group)));
        EXPECT_EQ(std::get<Value>(state.at("step")), Value(int64_t{12}));
      }
    });
  }
}

TEST(Checkpoint, EveryLayout_LoadsIntoEveryOtherOnOtherRankCounts) {
  const at::Tensor whole = counted({5, 3, 2}).to(at::kFloat);
  for (const Place& from : all_places()) {
    const TemporaryFolder folder;
    save_place(whole, from, folder / "c");
    SCOPED_TRACE(str_cat("from ", text_of(from)));
    expect_loads(whole, all_places(), folder / "c");
  }
}

TEST(Checkpoint, TensorsWithoutCells_LoadIntoEveryOther) {
  std::vector<Place> places = {{1, DeviceMesh({1}), "RaggedShard((0,), (2,))"}};
  for (const std::string text : {"", "R", "S(0)", "S(1)", "RaggedShard((0,), (1, 1))", "RaggedShard((0,), (0, 4))"}) {
    places.push_back({2, DeviceMesh({2}), text});
  }
  for (const Shape& shape : {Shape{0, 4}, Shape{4, 0}}) {
    for (const Place& from : places) {
      const TemporaryFolder folder;
      SCOPED_TRACE(str_cat(tuple_text(shape), " from ", text_of(from)));
      save_place(counted(shape), from, folder / "c");
      EXPECT_EQ(data_files_in(folder / "c"), 0U);
      expect_loads(counted(shape), places, folder / "c");
    }
  }
}

TEST(Checkpoint, RankWithoutCells_WritesNothing) {
  const at::Tensor whole = counted({5, 3, 2});
  const auto files = [&](const Place& place) {
    const TemporaryFolder folder;
    save_place(whole, place, folder / "c");
    return data_files_in(folder / "c");
  };
  EXPECT_EQ(files({2, DeviceMesh({2}), "RaggedShard((0,), (0, 5))"}), 1U);
  EXPECT_EQ(files({4, DeviceMesh({4}), "S(0)"}), 3U);
  EXPECT_EQ(files({4, DeviceMesh({4}), "R"}), 1U);  // one replica writes
  EXPECT_EQ(files({4, DeviceMesh({2}, {}, {3, 1}), "S(1)"}), 2U);
}

TEST(Checkpoint, NextSave_ReplacesTheCheckpoint) {
  const TemporaryFolder folder;
  const Place place{2, DeviceMesh({2}), "RaggedShard((0,), (1, 4))"};
  save_place(counted({5, 2}), place, folder / "c");
  save_place(counted({5, 2}, 3, 7), {2, DeviceMesh({2}), "S(1)"}, folder / "c");
  expect_loads(counted({5, 2}, 3, 7), {place}, folder / "c");
  EXPECT_EQ(data_files_in(folder / "c"), 2U);
}

TEST(Checkpoint, AsyncSave_NextStepDoesNotReachIt) {
  const TemporaryFolder folder;
  const at::Tensor whole = counted({200, 64});
  for (const std::string placements : {"S(0)", "RaggedShard((0,), (1, 3))"}) {
    const Place place{2, DeviceMesh({2}), placements};
    run_ranks(2, [&](const ThreadRank& self) {
      Checkpointer checkpointer = checkpointer_of(self);
      const StateDict state = {{"w", entry_of(whole, place, self.group)},
                               {"t", whole.t().clone().t()},  // strided: copied while the snapshot is taken
                               {"step", Value(int64_t{12})}};
      const auto saving = async_save(state, folder / "c", checkpointer);
      for (const std::string name : {"w", "t"}) local_of(state.at(name)).fill_(-1);
      saving->wait();
      StateDict loaded = {
          {"w", entry_of(at::zeros_like(whole), place, self.group)}, {"t", at::zeros_like(whole)}, {"step", Value()}};
      load(loaded, folder / "c", checkpointer);
      expect_equal(local_of(loaded.at("w")), local_of(entry_of(whole, place, self.group)));
      expect_equal(local_of(loaded.at("t")), whole);
    });
  }
}

TEST(Checkpoint, AsyncSave_SecondSaveAndLoadWaitForIt) {
  const TemporaryFolder folder;
  run_ranks(2, [&](const ThreadRank& self) {
    Checkpointer checkpointer = checkpointer_of(self);
    std::vector<std::shared_ptr<AsyncSave>> saves;
    for (int64_t step = 0; step < 3; ++step) {
      saves.push_back(async_save({{"w", at::full({1000}, step)}, {"step", Value(step)}}, folder / "c", checkpointer));
      for (int64_t before = 0; before < step; ++before) EXPECT_TRUE(saves[static_cast<size_t>(before)]->done());
    }
    StateDict state = {{"w", at::zeros({1000}, at::kLong)}, {"step", Value()}};
    load(state, folder / "c", checkpointer);
    EXPECT_TRUE(saves[2]->done());
    EXPECT_EQ(std::get<Value>(state.at("step")), Value(int64_t{2}));
    expect_equal(local_of(state.at("w")), at::full({1000}, 2, at::kLong));
  });
}

TEST(Checkpoint, MissingParent_RaisesAtOnceOnEveryRank) {
  const TemporaryFolder folder;
  const std::filesystem::path directory = folder / "not there" / "c";
  const Strings texts = errors(2, [&](const ThreadRank& self) {
    Checkpointer checkpointer = checkpointer_of(self);
    async_save({{"w", at::ones({2})}}, directory, checkpointer);
  });
  EXPECT_EQ(texts[0].substr(0, 17), "InvalidArgument: ");
  EXPECT_NE(texts[0].find("not there"), std::string::npos) << texts[0];
  EXPECT_EQ(texts[1], texts[0]);
}

TEST(Checkpoint, PlanCache_IsUsedUntilARaggedTensorIsThere) {
  const TemporaryFolder folder;
  run_ranks(2, [&](const ThreadRank& self) {
    const auto hits_of = [&](const std::string& placements) {
      Checkpointer checkpointer = checkpointer_of(self);
      const Place place{2, DeviceMesh({2}), placements};
      for (int64_t step = 0; step < 3; ++step) {
        save({{"w", entry_of(counted({5, 2}), place, self.group)}, {"p", at::ones({2})}, {"step", Value(step)}},
             folder / "c", checkpointer);
      }
      return checkpointer.plan_cache().hits();
    };
    EXPECT_EQ(hits_of("S(0)"), 2);
    EXPECT_EQ(hits_of("RaggedShard((0,), (2, 3))"), 0);
  });
}

TEST(Checkpoint, Partial_RaisesByNameOnEveryRankBeforeAnythingIsWritten) {
  for (const CheckSetting setting : {CheckSetting::kOff, CheckSetting::kOn}) {
    const ScopedCheckSetting check(setting);
    const TemporaryFolder folder;
    save_place(counted({5, 2}), {2, DeviceMesh({2}), "S(0)"}, folder / "c");
    const auto before = files_in(folder / "c");
    for (const std::string name : {"c", "new"}) {
      const Strings texts = errors(2, [&](const ThreadRank& self) {
        Checkpointer checkpointer = checkpointer_of(self);
        const MeshCommunicator mesh(self.group, DeviceMesh({2}));
        const DTensor partial = DTensor::from_local(at::ones({2}), mesh, parse_placements("P(max)"), Shape{2});
        save({{"good", at::ones({1})}, {"layer.loss", partial}}, folder / name, checkpointer);
      });
      const std::string step = setting == CheckSetting::kOn ? "comparing replicas" : "planning the save";
      EXPECT_EQ(texts,
                Strings(2, "InvalidArgument: " + step +
                               " failed on rank 0: checkpoint entry 'layer.loss' has placement Partial(max): its "
                               "values are still to be reduced; redistribute it before saving (and on 1 other "
                               "rank)"));
    }
    EXPECT_EQ(files_in(folder / "c"), before);
    EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  }
}

TEST(Checkpoint, PartialTarget_RaisesOnEveryRank) {
  const TemporaryFolder folder;
  save_place(counted({4}), {1, DeviceMesh({1}), ""}, folder / "c");
  const Strings texts = errors(2, [&](const ThreadRank& self) {
    Checkpointer checkpointer = checkpointer_of(self);
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    StateDict state = {{"w", DTensor::from_local(counted({4}), mesh, parse_placements("P"), Shape{4})},
                       {"step", Value()}};
    load(state, folder / "c", checkpointer);
  });
  EXPECT_EQ(texts, Strings(2,
                           "InvalidArgument: planning the load failed on rank 0: checkpoint entry 'w' has placement "
                           "Partial(sum): its values are still to be reduced; load into another layout (and on 1 other "
                           "rank)"));
}

TEST(Checkpoint, RanksThatDisagreeAboutATensor_RaiseOnAllNamingBoth) {
  const TemporaryFolder folder;
  for (const CheckSetting setting : {CheckSetting::kOff, CheckSetting::kOn}) {
    const ScopedCheckSetting check(setting);
    const auto save_error = [&](const std::array<at::Tensor, 2>& tensors) {
      const Strings texts = errors(2, [&](const ThreadRank& self) {
        Checkpointer checkpointer = checkpointer_of(self);
        save({{"w", tensors[static_cast<size_t>(self.rank)]}}, folder / "c", checkpointer);
      });
      EXPECT_EQ(texts[0], texts[1]);
      return texts[0];
    };
    const std::string rule = "; dtype and shape must be the same on all ranks";
    EXPECT_EQ(save_error({at::ones({2}), at::zeros({2}, at::kDouble)}),
              "InvalidArgument: tensor 'w' is F32 (2,) on rank 0 but F64 (2,) on rank 1" + rule);
    EXPECT_EQ(save_error({at::ones({2}), at::zeros({2, 1})}),
              "InvalidArgument: tensor 'w' is F32 (2,) on rank 0 but F32 (2, 1) on rank 1" + rule);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "c"));
}

TEST(Checkpoint, UnequalReplicas_RaiseOnAllUnderTheCheck) {
  const TemporaryFolder folder;
  const auto save_state = [&](const ThreadRank& self, const std::string& what) {
    Checkpointer checkpointer = checkpointer_of(self);
    const auto own = [&](const std::string& name) { return name == what && self.rank == 3 ? 9 : 0; };
    // Columns 0 are of ranks 0 and 2, columns 1 of ranks 1 and 3.
    const StateEntry replicated =
        entry_of(counted({2, 2}, 1, own("R, S(1)")), {4, DeviceMesh({2, 2}), "R, S(1)"}, self.group);
    const StateDict state = {
        {"d", replicated}, {"p", at::full({3}, own("plain"))}, {"v", Value(static_cast<double>(own("value")))}};
    save(state, folder / "c", checkpointer);
    async_save(state, folder / "c", checkpointer)->wait();
  };
  const auto texts = [&](const std::string& what) {
    return errors(4, [&](const ThreadRank& self) { save_state(self, what); });
  };
  const auto differ = [](const std::string& ranks, const std::string& entry) {
    return Strings(4, str_cat("FailedPrecondition: ranks ", ranks, " differ in ", entry,
                              ", of which both are to hold the same; saving would keep one of them"));
  };
  {
    const ScopedCheckSetting on(CheckSetting::kOn);
    EXPECT_EQ(texts("R, S(1)"), differ("1 and 3", "the cells (0, 1)+(2, 1) of F64 tensor 'd' of shape (2, 2)"));
    EXPECT_EQ(texts("plain"), differ("0 and 3", "the cells (0,)+(3,) of I64 tensor 'p' of shape (3,)"));
    EXPECT_EQ(texts("value"), differ("0 and 3", "the value 'v'"));
    EXPECT_FALSE(std::filesystem::exists(folder / "c"));
    EXPECT_EQ(texts("nothing"), Strings(4, "no error"));
  }
  const ScopedCheckSetting off(CheckSetting::kOff);
  for (const std::string what : {"R, S(1)", "plain", "value"}) EXPECT_EQ(texts(what), Strings(4, "no error"));
}

TEST(Checkpoint, MissingAndExtraEntries_RaiseUnlessAllowedByName) {
  const TemporaryFolder folder;
  save_place(counted({4}), {1, DeviceMesh({1}), ""}, folder / "c");  // 'w' and 'step'
  run_ranks(2, [&](const ThreadRank& self) {
    Checkpointer checkpointer = checkpointer_of(self);
    StateDict state = {{"w", at::zeros({4}, at::kDouble)}, {"bias", at::full({2}, 5.0)}, {"epoch", Value("kept")}};
    const auto load_error = [&](const LoadOptions& options) {
      return error_of([&] { load(state, folder / "c", checkpointer, options); });
    };
    EXPECT_NE(load_error({{"bias"}, {"step"}, {}}).find("does not hold 'epoch'"), std::string::npos);
    EXPECT_NE(load_error({{"epoch"}, {"step"}, {}}).find("does not hold 'bias'"), std::string::npos);
    EXPECT_EQ(load_error({{"bias", "epoch"}, {}, {}}),
              "InvalidArgument: the checkpoint holds 'step', which no rank loads; entries in allow_extra are left out");
    expect_equal(local_of(state.at("w")), at::zeros({4}, at::kDouble));
    EXPECT_EQ(load_error({{"b*", "epoch"}, {"st?p"}, {}}), "no error");
    expect_equal(local_of(state.at("w")), counted({4}));
    expect_equal(local_of(state.at("bias")), at::full({2}, 5.0));
    EXPECT_EQ(std::get<Value>(state.at("epoch")), Value("kept"));
  });
}

TEST(Checkpoint, Values_RoundTripWithTheirTypes) {
  const TemporaryFolder folder;
  const StateDict saved = {
      {"none", Value()},
      {"bool", Value(true)},
      {"int", Value(int64_t{-1})},
      {"big", Value(BigInteger{"123456789012345678901234567890"})},
      {"float", Value(-0.0)},
      {"complex", Value(std::complex<double>(1, -2))},
      {"text", Value("gr\xC3\xBC\xC3\x9F")},
      {"bytes", Value(Bytes{std::string("\0\xFF", 2)})},
      {"nested", Value(ValueDict{{{Value(int64_t{0}), Value(ValueTuple{{Value(0.9), Value(ValueList{})}})}}})},
  };
  run_ranks(2, [&](const ThreadRank& self) {
    Checkpointer checkpointer = checkpointer_of(self);
    save(saved, folder / "c", checkpointer);
    StateDict loaded;
    for (const auto& [name, entry] : saved) loaded.emplace(name, Value("to be replaced"));
    load(loaded, folder / "c", checkpointer);
    for (const auto& [name, entry] : saved) EXPECT_EQ(std::get<Value>(loaded.at(name)), std::get<Value>(entry)) << name;
  });
}

TEST(Checkpoint, ValueWantedAsATensorAndTheReverse_Raise) {
  const TemporaryFolder folder;
  Checkpointer checkpointer(std::make_shared<SingleExchange>());
  save({{"w", at::ones({2})}, {"step", Value(int64_t{1})}}, folder / "c", checkpointer);
  StateDict tensors = {{"w", at::ones({2})}, {"step", at::ones({1})}};
  EXPECT_EQ(error_of([&] { load(tensors, folder / "c", checkpointer); }),
            "InvalidArgument: planning the load failed on rank 0: 'step' is stored as a value, but wanted as a tensor "
            "F32 (1,)");
  StateDict values = {{"w", Value()}, {"step", Value()}};
  EXPECT_EQ(error_of([&] { load(values, folder / "c", checkpointer); }),
            "InvalidArgument: planning the load failed on rank 0: 'w' is stored as a tensor, but wanted as a value");
}

}  // namespace
}  // namespace hyper_parallel::test
