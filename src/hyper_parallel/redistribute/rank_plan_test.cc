#include "hyper_parallel/redistribute/rank_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>

#include "hyper_parallel/redistribute/planner.h"

namespace hyper_parallel {
namespace {

Plan plan_of(const DeviceMesh& mesh, const std::string& from, const std::string& to, const Dims& shape) {
  return plan_redistribution(Layout(mesh, parse_placements(from)), Layout(mesh, parse_placements(to)), shape);
}

/// Elements from this rank to each rank of a mesh of `ranks`: what it sends, and what it keeps.
std::vector<int64_t> input_splits(const Plan& plan, int64_t rank, int64_t ranks) {
  const RankStep step = rank_plan(plan, rank).steps.at(0);
  std::vector<int64_t> splits(static_cast<size_t>(ranks), 0);
  for (const Transfer& send : step.sends) splits[static_cast<size_t>(send.peer)] += send.numel;
  for (const LocalCopy& copy : step.copies) splits[static_cast<size_t>(rank)] += copy.from.numel();
  return splits;
}

TEST(RankPlan_RaggedToRagged, WorkedExample_HasTheSpecifiedInputSplits) {
  // 20 cells, units (1, 1, 2): [0, 5), [5, 10), [10, 20); units (2, 1, 1): [0, 10), [10, 15), [15, 20).
  const Plan plan = plan_of(DeviceMesh({3}), "Ragged((0, 1), (1, 1, 2))", "Ragged((0, 1), (2, 1, 1))", {5, 4});
  EXPECT_EQ(input_splits(plan, 0, 3), (std::vector<int64_t>{5, 0, 0}));
  EXPECT_EQ(input_splits(plan, 1, 3), (std::vector<int64_t>{5, 0, 0}));
  EXPECT_EQ(input_splits(plan, 2, 3), (std::vector<int64_t>{0, 5, 5}));
}

TEST(RankPlan_RaggedToRagged, Messages_SayWhereTheirElementsLie) {
  const Plan plan = plan_of(DeviceMesh({3}), "Ragged((0, 1), (1, 1, 2))", "Ragged((0, 1), (2, 1, 1))", {5, 4});
  const RankStep first = rank_step(plan.steps.at(0), 0);
  EXPECT_TRUE(first.sends.empty());
  EXPECT_EQ(first.copies, (std::vector<LocalCopy>{{run_view(0, 5), run_view(0, 5)}}));
  EXPECT_EQ(first.receives, (std::vector<Transfer>{{1, 5, {run_view(5, 5)}}}));
  const RankStep last = rank_step(plan.steps.at(0), 2);
  EXPECT_EQ(last.sends, (std::vector<Transfer>{{1, 5, {run_view(0, 5)}}}));
  EXPECT_EQ(last.copies, (std::vector<LocalCopy>{{run_view(5, 5), run_view(0, 5)}}));
  EXPECT_EQ(last.source_numel, 10);
  EXPECT_EQ(last.target_numel, 5);
}

TEST(RankPlan_RaggedToRagged, ZeroUnitRank_OnlyReceives) {
  const RankStep step = rank_step(plan_of(DeviceMesh({3}), "Ragged((0,), (3, 0, 3))", "S(0)", {6, 1}).steps.at(0), 1);
  EXPECT_EQ(step.source_numel, 0);
  EXPECT_TRUE(step.sends.empty());
  EXPECT_TRUE(step.copies.empty());
  EXPECT_EQ(step.receives, (std::vector<Transfer>{{0, 1, {run_view(0, 1)}}, {2, 1, {run_view(1, 1)}}}));
}

TEST(RankPlan_Gather, RaggedToReplicate_IsReceivedInPlace) {
  const RankStep step = rank_step(plan_of(DeviceMesh({3}), "Ragged((0,), (1, 0, 2))", "R", {3, 4}).steps.at(0), 0);
  EXPECT_EQ(step.receives, (std::vector<Transfer>{{2, 8, {run_view(4, 8)}}}));  // nothing from the empty rank 1
  EXPECT_TRUE(step.receives.at(0).is_in_place());
  EXPECT_EQ(step.sends, (std::vector<Transfer>{{1, 4, {run_view(0, 4)}}, {2, 4, {run_view(0, 4)}}}));
}

TEST(RankPlan_BoxMessages, ShardedColumns_ArePackedBySender) {
  const RankStep step = rank_step(plan_of(DeviceMesh({2}), "S(0)", "S(1)", {4, 4}).steps.at(0), 0);
  // The right half of the own two rows goes out; rows 2 and 3 of the left half come in, whole rows of the target.
  EXPECT_EQ(step.sends, (std::vector<Transfer>{{1, 4, {StridedView{2, {2, 2}, {4, 1}}}}}));
  EXPECT_FALSE(step.sends.at(0).is_in_place());
  EXPECT_EQ(step.receives, (std::vector<Transfer>{{1, 4, {run_view(4, 4)}}}));
  EXPECT_EQ(step.copies, (std::vector<LocalCopy>{{StridedView{0, {2, 2}, {4, 1}}, run_view(0, 4)}}));
}

TEST(RankPlan_Replicas, EachReceiver_TakesFromTheHolderThatSharesItsCoordinate) {
  const Plan plan = plan_of(DeviceMesh({2, 2}, {"a", "b"}), "R, S(0)", "R, R", {4});
  EXPECT_EQ(rank_step(plan.steps.at(0), 0).receives.at(0).peer, 1);
  EXPECT_EQ(rank_step(plan.steps.at(0), 2).receives.at(0).peer, 3);
}

TEST(RankPlan_PermutedMesh, Peers_AreRanksNotPositions) {
  const RankStep step = rank_step(plan_of(DeviceMesh({3}, {"dp"}, {7, 2, 5}), "S(0)", "R", {3}).steps.at(0), 2);
  EXPECT_EQ(step.receives, (std::vector<Transfer>{{7, 1, {run_view(0, 1)}}, {5, 1, {run_view(2, 1)}}}));
}

TEST(RankPlan_Reduce, Combine_ListsTheGroupInMeshOrder) {
  const Plan plan = plan_of(DeviceMesh({3}, {"dp"}, {7, 2, 5}), "P(avg)", "Ragged((0,), (1, 2, 0))", {3});
  const RankStep step = rank_step(plan.steps.at(0), 2);
  ASSERT_TRUE(step.combine.has_value());
  EXPECT_EQ(*step.combine, (Combine{ReduceOp::kAvg, 3, {7, 2, 5}}));
  EXPECT_EQ(step.sends, (std::vector<Transfer>{{7, 1, {run_view(0, 1)}}}));  // nothing to the empty rank 5
  EXPECT_EQ(step.receives, (std::vector<Transfer>{{7, 2, {run_view(0, 2)}}, {5, 2, {run_view(0, 2)}}}));
  const RankStep empty = rank_step(plan.steps.at(0), 5);
  EXPECT_EQ(empty.target_numel, 0);
  EXPECT_TRUE(empty.receives.empty());
  EXPECT_EQ(empty.sends.size(), 2u);
}

TEST(RankPlan_TargetShape, NormalAndRaggedTargets_HaveTheirLocalShapes) {
  const DeviceMesh mesh({4});
  EXPECT_EQ(rank_plan(plan_of(mesh, "R", "S(0)", {5, 3}), 2).target_shape, (Dims{1, 3}));
  EXPECT_EQ(rank_plan(plan_of(mesh, "R", "S(0)", {5, 3}), 3).target_shape, (Dims{0, 3}));
  EXPECT_EQ(rank_plan(plan_of(mesh, "R", "Ragged((0,), (1, 0, 3, 1))", {5, 3}), 2).target_shape, (Dims{9}));
}

TEST(RankPlan_OutsideTheMesh, Rank_HasNoStepAndAnEmptyLocal) {
  const RankPlan plan = rank_plan(plan_of(DeviceMesh({2}, {"dp"}, {2, 3}), "S(0)", "R", {4}), 0);
  EXPECT_TRUE(plan.steps.empty());
  EXPECT_EQ(plan.target_shape, Dims{0});
}

TEST(RankPlan_EqualLayouts, Rank_HasNoStep) {
  const RankPlan plan = rank_plan(plan_of(DeviceMesh({2}), "S(0)", "S(0)", {5, 2}), 1);
  EXPECT_TRUE(plan.steps.empty());
  EXPECT_EQ(plan.target_shape, (Dims{2, 2}));
}

TEST(RankPlan_SendsAndReceives, EveryPair_AgreesOnEachMessage) {
  const DeviceMesh mesh({2, 3}, {"a", "b"}, {4, 0, 2, 5, 3, 1});
  for (const auto& [from, to] :
       {std::pair("S(1), S(0)", "S(0), S(0)"), std::pair("R, Ragged((0, 1), (1, 0, 4))", "S(1), R"),
        std::pair("S(0), R", "R, S(1)"), std::pair("P, S(1)", "R, S(0)")}) {
    const Plan plan = plan_of(mesh, from, to, {5, 4});
    for (const Step& step : plan.steps) {
      std::map<std::pair<int64_t, int64_t>, int64_t> sent;
      std::map<std::pair<int64_t, int64_t>, int64_t> received;
      for (const int64_t rank : mesh.ranks()) {
        const RankStep own = rank_step(step, rank);
        for (const Transfer& send : own.sends) sent[{rank, send.peer}] = send.numel;
        for (const Transfer& receive : own.receives) received[{receive.peer, rank}] = receive.numel;
      }
      EXPECT_EQ(sent, received) << from << " to " << to;
    }
  }
}

TEST(RankPlan_LargeMesh, IntervalLayouts_LookAtFewRanks) {
  constexpr int64_t kRanks = 1000;
  const DeviceMesh mesh({kRanks});
  const Dims shape{4 * kRanks, 3};
  const Distribution ragged(Layout(mesh, parse_placements("Ragged((0,), (1*500, 3*500))")), shape);
  const Distribution even(Layout(mesh, parse_placements("S(0)")), shape);
  const auto visited = [&](const Distribution& owners, const Distribution& wanted) {
    int64_t count = 0;
    owners.for_each_owner(wanted.owned(Dims{kRanks / 2}), {std::nullopt}, [&](const Dims&, const Region&) { ++count; });
    return count;
  };
  EXPECT_LE(visited(even, ragged), 3);
  EXPECT_LE(visited(ragged, even), 3);
}

TEST(RankPlan_Text, Step_HasALineForEachMessage) {
  const Plan plan = plan_of(DeviceMesh({3}), "Ragged((0, 1), (1, 1, 2))", "Ragged((0, 1), (2, 1, 1))", {5, 4});
  EXPECT_EQ(to_string(rank_step(plan.steps.at(0), 1)),
            "send to 0: 5 elements [0:5]\n"
            "receive from 2: 5 elements [0:5]\n");
  EXPECT_EQ(to_string(rank_step(plan.steps.at(0), 2)),
            "send to 1: 5 elements [0:5]\n"
            "keep 5 elements [5:10] -> [0:5]\n");
}

TEST(RankPlan_Text, Reduce_NamesTheOrderOfItsSum) {
  const Plan plan = plan_of(DeviceMesh({2}, {"dp"}, {1, 0}), "P(max)", "S(0)", {2});
  EXPECT_EQ(to_string(rank_step(plan.steps.at(0), 0)),
            "send to 1: 1 elements [0:1]\n"
            "receive from 1: 1 elements [0:1]\n"
            "keep 1 elements [1:2] -> [0:1]\n"
            "combine by max in the order of ranks (1, 0)\n");
}

TEST(RankPlan_Text, AverageOverOneOfTwoDims_IsDividedByThatDimsSize) {
  const Plan plan = plan_of(DeviceMesh({1, 3, 2}), "R, P(avg), P", "R, S(0), S(0)", {6});
  const RankStep step = rank_step(plan.steps.at(0), 0);
  EXPECT_EQ(step.combine->divisor, 3);
  EXPECT_EQ(step.combine->sources.size(), 6u);
  EXPECT_NE(to_string(step).find("combine by avg in the order of ranks (0, 1, 2, 3, 4, 5), divided by 3\n"),
            std::string::npos)
      << to_string(step);
  EXPECT_EQ(rank_step(plan_of(DeviceMesh({2}), "P", "S(0)", {2}).steps.at(0), 0).combine->divisor, 1);
}

}  // namespace
}  // namespace hyper_parallel
