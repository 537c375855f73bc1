#include "hyper_parallel/operations/call_cache.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "hyper_parallel/operations/contraction_rule.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

const Dims kX{4, 6};
const Dims kWeight{8, 6};

DeviceMesh line() { return DeviceMesh({2}, {"tp"}); }

Layout layout_of(const DeviceMesh& mesh, const char* placements) { return Layout(mesh, parse_placements(placements)); }

CallKey key_of(const char* x, const char* weight, const DeviceMesh& mesh = line(), int64_t rank = 0) {
  return {"linear", {{kX, layout_of(mesh, x), 4}, {kWeight, layout_of(mesh, weight), 4}}, rank};
}

/// The plan of a call of `linear`.
CallPlan planned(const CallKey& key) {
  std::vector<GivenOperand> given;
  for (const CallKey::Operand& operand : key.operands) given.push_back({"x", operand.layout, operand.item_bytes});
  return plan_call("linear", linear_rule(key.operands[0].shape, key.operands[1].shape, std::nullopt), given,
                   std::nullopt, key.rank);
}

TEST(CallPlan, OfARank_HasItsPartsOfTheResults) {
  const CallPlan plan = planned(key_of("R", "S(0)"));
  EXPECT_TRUE(plan.is_member);
  EXPECT_EQ(plan.propagation.results.front().placements(), parse_placements("S(1)"));
  EXPECT_EQ(plan.local_shapes, std::vector<Dims>({Dims{4, 4}}));
  EXPECT_EQ(plan.adds, std::vector<bool>({true, true}));
}

TEST(CallPlan, UnevenParts_DifferBetweenRanks) {
  const CallKey first{"", {{kX, layout_of(line(), "R"), 4}, {{5, 6}, layout_of(line(), "S(0)"), 4}}, 0};
  CallKey second = first;
  second.rank = 1;
  EXPECT_EQ(planned(first).local_shapes, std::vector<Dims>({Dims{4, 3}}));
  EXPECT_EQ(planned(second).local_shapes, std::vector<Dims>({Dims{4, 2}}));
}

TEST(CallPlan, AddendOfShares_IsAddedByTheFirstRankAlone) {
  const std::vector<GivenOperand> given = {{"x", layout_of(line(), "S(1)"), 4},
                                           {"weight", layout_of(line(), "S(1)"), 4},
                                           {"bias", layout_of(line(), "R"), 4}};
  const auto adds = [&](int64_t rank) {
    return plan_call("linear", linear_rule(kX, kWeight, Dims{8}), given, std::nullopt, rank).adds;
  };
  EXPECT_EQ(adds(0), std::vector<bool>({true, true, true}));
  EXPECT_EQ(adds(1), std::vector<bool>({true, true, false}));
}

TEST(CallPlan, OfARankOutsideTheMesh_HasNoParts) {
  const CallPlan plan = planned(key_of("R", "S(0)", line(), 7));
  EXPECT_FALSE(plan.is_member);
  EXPECT_TRUE(plan.local_shapes.empty());
  EXPECT_EQ(plan.propagation.results.front().placements(), parse_placements("S(1)"));
}

TEST(CallCache_Key, EveryPartOfIt_MakesAnotherEntry) {
  CallCache cache(32);
  std::vector<CallKey> keys = {
      key_of("R", "S(0)"),
      key_of("S(0)", "R"),
      key_of("S(1)", "S(1)"),
      key_of("R", "S(0)", line(), 1),
      key_of("R", "S(0)", DeviceMesh({2}, {"dp"})),
      key_of("R", "S(0)", DeviceMesh({2}, {"tp"}, {1, 0})),
      key_of("R", "S(0)", DeviceMesh({4}, {"tp"})),
      key_of("R, R", "S(0), R", DeviceMesh({2, 1}, {"tp", "dp"})),
      key_of("R, R", "R, S(0)", DeviceMesh({1, 2}, {"tp", "dp"})),
  };
  keys.push_back(keys.front());
  keys.back().operands[0].shape = Dims{2, 6};
  keys.push_back(keys.front());
  keys.back().operands[1].item_bytes = 2;
  keys.push_back(keys.front());
  keys.back().call = "linear of other arguments";
  for (int round = 0; round < 2; ++round) {
    for (const CallKey& key : keys) EXPECT_EQ(*cache.get(key, [&] { return planned(key); }), planned(key));
  }
  EXPECT_EQ(cache.misses(), std::ssize(keys));
  EXPECT_EQ(cache.hits(), std::ssize(keys));
}

TEST(CallCache_Key, OfEqualValues_IsTheSameEntry) {
  CallCache cache(4);
  const auto first = cache.get(key_of("R", "S(0)"), [] { return planned(key_of("R", "S(0)")); });
  EXPECT_EQ(cache.get(key_of("R", "S(0)"), [] { return CallPlan{}; }), first);
}

TEST(CallCache_Capacity, BoundsIt) {
  CallCache cache(2);
  for (int64_t rows = 1; rows <= 5; ++rows) {
    CallKey key = key_of("R", "S(0)");
    key.operands[0].shape = Dims{rows, 6};
    cache.get(key, [&] { return planned(key); });
    EXPECT_LE(cache.size(), 2u);
  }
}

TEST(CallCache_Error, RefusedCall_IsNotKept) {
  CallCache cache(4);
  for (int call = 0; call < 2; ++call) {
    expect_error(ErrorCode::kInvalidArgument, "does not commute with the pending reduction",
                 [&] { cache.get(key_of("P(max)", "R"), [] { return planned(key_of("P(max)", "R")); }); });
  }
  EXPECT_EQ(cache.size(), 0u);
}

TEST(CallCache_Threads, ConcurrentCalls_AllGetTheRightPlan) {
  CallCache cache(3);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        CallKey key = key_of("R", "S(0)");
        key.operands[0].shape = Dims{1 + i % 5, 6};
        if (*cache.get(key, [&] { return planned(key); }) != planned(key)) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_LE(cache.size(), 3u);
}

}  // namespace
}  // namespace hyper_parallel
