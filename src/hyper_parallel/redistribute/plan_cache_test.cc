#include "hyper_parallel/redistribute/plan_cache.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "hyper_parallel/redistribute/planner.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

Layout layout_of(const DeviceMesh& mesh, const std::string& placements) {
  return Layout(mesh, parse_placements(placements));
}

RankPlan planned(const Layout& source, const Layout& target, const Dims& shape, int64_t rank) {
  return rank_plan(plan_redistribution(source, target, shape), rank);
}

TEST(PlanCache_Get, SecondCall_GetsTheSamePlan) {
  PlanCache cache(4);
  const DeviceMesh mesh({2});
  const auto first = cache.get(layout_of(mesh, "S(0)"), layout_of(mesh, "R"), {4, 4}, 1);
  const auto second = cache.get(layout_of(DeviceMesh({2}), "S(0)"), layout_of(DeviceMesh({2}), "R"), {4, 4}, 1);
  EXPECT_EQ(first, second);  // the same object
  EXPECT_EQ(*first, planned(layout_of(mesh, "S(0)"), layout_of(mesh, "R"), {4, 4}, 1));
  EXPECT_EQ(cache.hits(), 1);
  EXPECT_EQ(cache.misses(), 1);
}

TEST(PlanCache_Get, ShardDimCountedFromTheEnd_IsTheSameKeyOnlyForThatRankOfTensor) {
  PlanCache cache(4);
  const DeviceMesh mesh({2});
  const auto folded = cache.get(layout_of(mesh, "S(1)"), layout_of(mesh, "R"), {4, 4}, 0);
  EXPECT_EQ(cache.get(layout_of(mesh, "S(-1)"), layout_of(mesh, "R"), {4, 4}, 0), folded);
  EXPECT_NE(cache.get(layout_of(mesh, "S(-1)"), layout_of(mesh, "R"), {4, 4, 4}, 0), folded);
}

TEST(PlanCache_Case11a, OrderOfMeshDims_IsPartOfTheKey) {
  PlanCache cache(16);
  const DeviceMesh mesh({2, 2}, {"a", "b"});
  const auto first_element = [&](const char* target, int64_t rank) {
    return cache.get(layout_of(mesh, "R, R"), layout_of(mesh, target), {8, 8}, rank)
        ->steps.at(0)
        .copies.at(0)
        .from.offset;
  };
  const std::vector<int64_t> rows_first = {0, 4, 32, 36};
  const std::vector<int64_t> columns_first = {0, 32, 4, 36};
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(first_element("S(0), S(1)", rank), rows_first[static_cast<size_t>(rank)]);
  }
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(first_element("S(1), S(0)", rank), columns_first[static_cast<size_t>(rank)]);
  }
}

TEST(PlanCache_Case11b, ShapeAndMesh_ArePartOfTheKey) {
  PlanCache cache(16);
  const DeviceMesh four({4}, {"c"});
  const DeviceMesh two({2}, {"c"}, {0, 1});
  for (const auto& [mesh, shape] :
       {std::pair(four, Dims{4, 4}), std::pair(four, Dims{8, 8}), std::pair(two, Dims{4, 4})}) {
    const Layout source = layout_of(mesh, "S(0)");
    const Layout target = layout_of(mesh, "S(1)");
    EXPECT_EQ(*cache.get(source, target, shape, 0), planned(source, target, shape, 0));
  }
  EXPECT_EQ(cache.misses(), 3);
}

TEST(PlanCache_Case11b, NamesAndRankList_ArePartOfTheKey) {
  PlanCache cache(16);
  for (const DeviceMesh& mesh : {DeviceMesh({2}, {"c"}), DeviceMesh({2}, {"d"}), DeviceMesh({2}, {"c"}, {1, 0})}) {
    cache.get(layout_of(mesh, "S(0)"), layout_of(mesh, "R"), {4}, 0);
  }
  EXPECT_EQ(cache.misses(), 3);
}

TEST(PlanCache_Case11c, Units_ArePartOfTheKey) {
  PlanCache cache(16);
  const DeviceMesh mesh({2}, {"c"});
  const auto kept = [&](const char* target) {
    return cache.get(layout_of(mesh, "R"), layout_of(mesh, target), {8}, 0)->steps.at(0).target_numel;
  };
  EXPECT_EQ(kept("Ragged((0,), (1, 3))"), 2);
  EXPECT_EQ(kept("Ragged((0,), (3, 1))"), 6);
}

TEST(PlanCache_Key, RankOpAndDims_ArePartOfIt) {
  PlanCache cache(16);
  const DeviceMesh mesh({2});
  cache.get(layout_of(mesh, "P"), layout_of(mesh, "R"), {4, 4}, 0);
  cache.get(layout_of(mesh, "P"), layout_of(mesh, "R"), {4, 4}, 1);
  cache.get(layout_of(mesh, "P(avg)"), layout_of(mesh, "R"), {4, 4}, 0);
  cache.get(layout_of(mesh, "P"), layout_of(mesh, "Ragged((0,), (1, 1))"), {4, 4}, 0);
  cache.get(layout_of(mesh, "P"), layout_of(mesh, "Ragged((0, 1), (1, 1))"), {4, 4}, 0);
  EXPECT_EQ(cache.misses(), 5);
  EXPECT_EQ(cache.hits(), 0);
}

TEST(PlanCache_Capacity, LeastRecentlyUsedPlan_GoesFirst) {
  PlanCache cache(2);
  const DeviceMesh mesh({2});
  const auto get = [&](int64_t size) { cache.get(layout_of(mesh, "S(0)"), layout_of(mesh, "R"), {size}, 0); };
  get(1);
  get(2);
  get(1);  // 2 is now the older one
  get(3);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.misses(), 3);
  get(1);
  EXPECT_EQ(cache.misses(), 3);
  get(2);
  EXPECT_EQ(cache.misses(), 4);
}

TEST(PlanCache_Capacity, Zero_PlansEveryCallAnewAndRight) {
  PlanCache cache(0);
  const DeviceMesh mesh({2});
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(*cache.get(layout_of(mesh, "S(0)"), layout_of(mesh, "R"), {4}, 0),
              planned(layout_of(mesh, "S(0)"), layout_of(mesh, "R"), {4}, 0));
  }
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.misses(), 2);
}

TEST(PlanCache_Error, RefusedRequest_IsNotKept) {
  PlanCache cache(4);
  const DeviceMesh mesh({2});
  for (int call = 0; call < 2; ++call) {
    expect_error(ErrorCode::kInvalidArgument, "nothing but the same Partial becomes Partial(sum)",
                 [&] { cache.get(layout_of(mesh, "R"), layout_of(mesh, "P"), {4}, 0); });
    expect_error(ErrorCode::kOutOfRange, "Shard(1) is out of range for a tensor of 1 dims",
                 [&] { cache.get(layout_of(mesh, "S(1)"), layout_of(mesh, "R"), {4}, 0); });
  }
  EXPECT_EQ(cache.size(), 0u);
}

TEST(PlanCache_Threads, ConcurrentCalls_AllGetTheRightPlan) {
  PlanCache cache(3);
  const DeviceMesh mesh({4});
  const Layout source = layout_of(mesh, "S(0)");
  const Layout target = layout_of(mesh, "Ragged((0,), (1, 3, 0, 4))");
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const Dims shape{8 * (1 + i % 5)};
        if (*cache.get(source, target, shape, 1) != planned(source, target, shape, 1)) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_EQ(cache.hits() + cache.misses(), 800);
  EXPECT_LE(cache.size(), 3u);
}

}  // namespace
}  // namespace hyper_parallel
