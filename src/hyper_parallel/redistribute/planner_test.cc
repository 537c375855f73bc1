#include "hyper_parallel/redistribute/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <ostream>
#include <tuple>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/redistribute/traffic.h"
#include "hyper_parallel/simulate/simulator.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

Layout layout_of(const DeviceMesh& mesh, const std::string& placements) {
  return Layout(mesh, parse_placements(placements));
}

const DeviceMesh& line() {
  static const DeviceMesh mesh({4}, {"dp"});
  return mesh;
}

const DeviceMesh& grid() {
  static const DeviceMesh mesh({2, 2}, {"a", "b"});
  return mesh;
}

std::string actions(const Plan& plan) {
  std::vector<std::string> texts;
  for (const Step& step : plan.steps) texts.push_back(action_text(step));
  return join(texts, "; ");
}

std::vector<double> counted_values(const Dims& shape) {
  std::vector<double> values(static_cast<size_t>(whole_box(shape).numel()));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

/// A row of the table of what moves. Elements are counted by hand from what each rank owns and lacks.
struct Row {
  const char* what;
  DeviceMesh mesh;
  Dims shape;
  const char* from;
  const char* to;
  const char* actions;
  int64_t rounds;
  int64_t received;  // elements, by all ranks
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.what; }

class PlannerTable : public ::testing::TestWithParam<Row> {};

TEST_P(PlannerTable, Row_TakesTheseStepsAndMovesTheLowerBound) {
  const Row& row = GetParam();
  const Plan plan = plan_redistribution(layout_of(row.mesh, row.from), layout_of(row.mesh, row.to), row.shape);
  EXPECT_EQ(actions(plan), row.actions) << row.what;
  EXPECT_EQ(rounds(plan), row.rounds) << row.what;
  const MeshTraffic cost = mesh_traffic(plan);
  EXPECT_EQ(cost.total_received, row.received) << row.what;
  EXPECT_EQ(cost.lower_bound, row.received) << row.what;
}

TEST_P(PlannerTable, Row_SimulatedGivesTheTargetsShares) {
  const Row& row = GetParam();
  const Plan plan = plan_redistribution(layout_of(row.mesh, row.from), layout_of(row.mesh, row.to), row.shape);
  const std::vector<double> values = counted_values(row.shape);
  EXPECT_EQ(simulate(plan, distribute_values(plan.source, values)), distribute_values(plan.target, values)) << row.what;
}

// Rows of (8, 4) are dealt out as 1, 3, 0, 4 by the units, as 2, 2, 2, 2 by Shard(0).
constexpr auto kUneven = "Ragged((0,), (1, 3, 0, 4))";

INSTANTIATE_TEST_SUITE_P(
    WhatMoves, PlannerTable,
    ::testing::Values(
        Row{"ragged to other units", line(), {8, 4}, kUneven, "Ragged((0,), (1, 1, 1, 1))", "all_to_all", 1, 12},
        Row{"ragged to other dims", line(), {8, 4}, kUneven, "Ragged((0, 1), (8, 8, 8, 8))", "all_to_all", 1, 12},
        Row{"ragged to the same runs", line(), {8, 4}, kUneven, "Ragged((0, 1), (2, 6, 0, 8))", "", 0, 0},
        Row{"ragged to Shard(0)", line(), {8, 4}, kUneven, "S(0)", "all_to_all", 1, 12},
        Row{"Shard(0) to ragged", line(), {8, 4}, "S(0)", kUneven, "all_to_all", 1, 12},
        Row{"ragged to Shard(1)", line(), {8, 4}, kUneven, "S(1)", "all_to_all", 1, 24},
        Row{"Shard(1) to ragged", line(), {8, 4}, "S(1)", kUneven, "all_to_all", 1, 24},
        Row{"ragged to another mesh dim",
            grid(),
            {8, 4},
            "R, Ragged((0,), (1, 3))",
            "Ragged((0,), (3, 1)), R",
            "all_to_all",
            1,
            32},
        Row{"Shard(0) to Shard(1)", line(), {8, 4}, "S(0)", "S(1)", "all_to_all", 1, 24},
        Row{"uneven Shard(0) to Shard(1)", line(), {5, 3}, "S(0)", "S(1)", "all_to_all", 1, 10},
        Row{"crossed shards", grid(), {4, 4}, "S(0), S(1)", "S(1), S(0)", "all_to_all", 1, 8},
        Row{"uneven nested shards to Replicate", grid(), {5, 3}, "S(0), S(0)", "R, R", "all_gather", 1, 45},
        Row{"inner nested shard gathered", grid(), {5, 3}, "S(0), S(0)", "S(0), R", "all_gather", 1, 15},
        Row{"Partial to ragged", line(), {8, 4}, "P", kUneven, "reduce_scatter(sum) over 'dp'", 1, 96},
        Row{"Partial to Shard(0)", line(), {8, 4}, "P(max)", "S(0)", "reduce_scatter(max) over 'dp'", 1, 96},
        Row{"Partial to Shard(1)", line(), {8, 4}, "P(min)", "S(1)", "reduce_scatter(min) over 'dp'", 1, 96},
        Row{"Partial to Replicate", line(), {8, 4}, "P", "R", "reduce_scatter(sum) over 'dp'; all_gather", 2, 192},
        Row{"Partial to Replicate of two",
            DeviceMesh({2}, {"tp"}),
            {8, 4},
            "P",
            "R",
            "all_reduce(sum) over 'tp'",
            1,
            64},
        Row{"Partial(max) of unevenly many cells to Replicate of two",
            DeviceMesh({2}, {"tp"}),
            {5},
            "P(max)",
            "R",
            "all_reduce(max) over 'tp'",
            1,
            10},
        Row{"Partial of two mesh dims at once",
            grid(),
            {8, 4},
            "P, P",
            "S(0), S(1)",
            "reduce_scatter(sum) over 'a', 'b'",
            1,
            96},
        Row{"the same Partial stays", grid(), {8, 4}, "P, S(0)", "P, S(1)", "all_to_all", 1, 32},
        Row{"Replicate to ragged", line(), {8, 4}, "R", kUneven, "slice", 0, 0},
        Row{"Replicate to Shard(1)", line(), {8, 4}, "R", "S(1)", "slice", 0, 0},
        Row{"ragged to Replicate", line(), {8, 4}, kUneven, "R", "all_gather", 1, 96},
        Row{"equal layouts", line(), {8, 4}, kUneven, kUneven, "", 0, 0},
        Row{"a Shard dim counted from the end", line(), {8, 4}, "S(-2)", "S(0)", "", 0, 0},
        Row{"one rank", DeviceMesh({1}), {8, 4}, "Ragged((0,), (1,))", "S(0)", "slice", 0, 0},
        Row{"no elements", line(), {0, 4}, kUneven, "S(1)", "all_to_all", 1, 0},
        Row{"a scalar", line(), {}, "P(avg)", "R", "reduce_scatter(avg) over 'dp'; all_gather", 2, 6}));

TEST(Planner_RaggedToAnotherMeshDim, Messages_StayInTheGroupOfTheSourcesDim) {
  const Plan plan = plan_redistribution(layout_of(grid(), "R, Ragged((0,), (1, 3))"),
                                        layout_of(grid(), "Ragged((0,), (3, 1)), R"), {8, 4});
  for (const int64_t rank : grid().ranks()) {
    const std::vector<int64_t> group = grid().group(1, rank);
    const RankStep step = rank_step(plan.steps.at(0), rank);
    for (const Transfer& receive : step.receives) EXPECT_THAT(group, ::testing::Contains(receive.peer));
  }
}

TEST(Planner_UnlikePartials, Reduces_InnermostFirst) {
  const Plan plan = plan_redistribution(layout_of(grid(), "P, P(max)"), layout_of(grid(), "S(0), S(1)"), {8, 4});
  EXPECT_EQ(actions(plan), "reduce_scatter(max) over 'b'; reduce_scatter(sum) over 'a'");
}

TEST(Planner_UnlikePartials, SumAndAvg_AreReducedTogether) {
  for (const char* from : {"P, P(avg)", "P(avg), P"}) {
    const Plan plan = plan_redistribution(layout_of(grid(), from), layout_of(grid(), "S(0), S(0)"), {8, 4});
    ASSERT_EQ(plan.steps.size(), 1u) << from;
    EXPECT_EQ(std::get<Reduce>(plan.steps[0].action), (Reduce{ReduceOp::kAvg, {0, 1}})) << from;
    EXPECT_EQ(mesh_traffic(plan).total_received, 96) << from;  // 8 cells on each of 4 ranks, of 3 others
    // (1 + 2 + 4 + 8) / 2: what is averaged over is one dim of two ranks.
    const Shares result = simulate(plan, {{0, Shares::mapped_type(32, 1)},
                                          {1, Shares::mapped_type(32, 2)},
                                          {2, Shares::mapped_type(32, 4)},
                                          {3, Shares::mapped_type(32, 8)}});
    EXPECT_EQ(result.at(3), std::vector<double>(8, 7.5)) << from;
  }
}

TEST(Planner_UnlikePartials, FirstReduction_LooksAheadToTheNext) {
  // Max onto rows of 'b' would do as well for itself; columns let the sum over 'a' end where the target wants it.
  const Plan plan = plan_redistribution(layout_of(grid(), "P, P(max)"), layout_of(grid(), "S(1), R"), {8, 4});
  EXPECT_EQ(mesh_traffic(plan).total_received, 128) << to_string(plan);
  EXPECT_EQ(mesh_traffic(plan).lower_bound, 128);
}

TEST(Planner_PartialBesideReplicas, Replicas_ShareTheWorkWhereThatReceivesLess) {
  const auto plan_on = [](const DeviceMesh& mesh) {
    return plan_redistribution(layout_of(mesh, "R, P"), layout_of(mesh, "R, S(0)"), {12, 4});
  };
  // Of two shares one is received either way: each replica reduces for itself.
  const Plan two = plan_on(grid());
  EXPECT_EQ(actions(two), "reduce_scatter(sum) over 'b'");
  EXPECT_EQ(mesh_traffic(two).total_received, 4 * 24);
  // Of three shares two are. Half of 16 cells from each of two others and the other half reduced: 16 + 8, not 32.
  const Plan three = plan_on(DeviceMesh({2, 3}, {"a", "b"}));
  EXPECT_EQ(actions(three), "reduce_scatter(sum) over 'b'; all_gather");
  EXPECT_EQ(mesh_traffic(three).total_received, 6 * 24);
  EXPECT_EQ(mesh_traffic(three).lower_bound, 6 * 24);
  const std::vector<double> values = counted_values({12, 4});
  EXPECT_EQ(simulate(three, distribute_values(three.source, values)), distribute_values(three.target, values));
}

TEST(Planner_PartialAndShard, MovesOnAnotherDim_WaitForTheReduction) {
  // Moving shares first would move each of them.
  for (const auto& [from, to, received] :
       {std::tuple("P, S(0)", "S(0), R", 80), std::tuple("P, S(0)", "S(0), S(1)", 48),
        std::tuple("P, S(0)", "R, S(1)", 80), std::tuple("S(0), P", "S(0), S(0)", 32)}) {
    const Plan plan = plan_redistribution(layout_of(grid(), from), layout_of(grid(), to), {8, 4});
    EXPECT_TRUE(std::holds_alternative<Reduce>(plan.steps.at(0).action)) << from << " to " << to;
    EXPECT_LE(rounds(plan), 2) << from << " to " << to;
    EXPECT_EQ(mesh_traffic(plan).total_received, received) << from << " to " << to;
  }
}

TEST(Planner_OtherMesh, NormalLayouts_MoveTheLowerBoundInOneRound) {
  // On the line rank r holds rows 2r and 2r + 1; on the grid ranks 0 .. 3 need 4 rows of 2 columns, of which ranks 0
  // and 3 hold 2 rows already and ranks 1 and 2 none.
  const Plan plan = plan_redistribution(layout_of(line(), "S(0)"), layout_of(grid(), "S(1), S(0)"), {8, 4});
  EXPECT_EQ(actions(plan), "all_to_all");
  EXPECT_EQ(mesh_traffic(plan).total_received, 24);
  const std::vector<double> values = counted_values({8, 4});
  EXPECT_EQ(simulate(plan, distribute_values(plan.source, values)), distribute_values(plan.target, values));
}

TEST(Planner_OtherMesh, PermutedRankList_MovesWhatTheRanksLack) {
  const DeviceMesh turned({4}, {"dp"}, {1, 0, 2, 3});
  const Plan plan = plan_redistribution(layout_of(line(), "S(0)"), layout_of(turned, "S(0)"), {8, 4});
  EXPECT_EQ(mesh_traffic(plan).total_received, 16);  // ranks 0 and 1 change places
  EXPECT_TRUE(rank_plan(plan, 2).steps.at(0).receives.empty());
}

TEST(Planner_Case10, Layouts_AreTheSameAfterPlanningAndRunning) {
  const DeviceMesh mesh({2});
  const Layout layout = layout_of(mesh, "P");
  const Shares p = {{0, {1}}, {1, {2}}};
  const Shares q = {{0, {10}}, {1, {11}}};
  const Shares p_before = p;
  for (const char* target : {"R", "Ragged((0,), (1, 0))"}) {
    const Plan first = plan_redistribution(layout, layout_of(mesh, target), {1});
    const Plan second = plan_redistribution(layout, layout_of(mesh, target), {1});
    EXPECT_EQ(first, second);
    EXPECT_EQ(simulate(first, p).at(0), std::vector<double>{3});
    EXPECT_EQ(simulate(second, p).at(0), std::vector<double>{3});
    EXPECT_EQ(simulate(first, q).at(0), std::vector<double>{21});
    EXPECT_EQ(layout.placements(), parse_placements("P"));
    EXPECT_EQ(p, p_before);
  }
}

struct Refusal {
  DeviceMesh source_mesh;
  DeviceMesh target_mesh;
  const char* from;
  const char* to;
  Dims shape;
  ErrorCode code;
  const char* text;
};

void PrintTo(const Refusal& row, std::ostream* out) {
  *out << row.from << " to " << row.to << " of " << tuple_text(row.shape);
}

class PlannerRefusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(PlannerRefusals, Request_RaisesWithTheRule) {
  const Refusal& row = GetParam();
  expect_error(row.code, row.text, [&] {
    plan_redistribution(layout_of(row.source_mesh, row.from), layout_of(row.target_mesh, row.to), row.shape);
  });
}

constexpr auto kInvalid = ErrorCode::kInvalidArgument;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

INSTANTIATE_TEST_SUITE_P(
    Partials, PlannerRefusals,
    ::testing::Values(
        Refusal{
            line(),
            line(),
            "R",
            "P",
            {8, 4},
            kInvalid,
            "cannot redistribute [Replicate()] to [Partial(sum)]: nothing but the same Partial becomes Partial(sum) on "
            "mesh dim 'dp'"},
        Refusal{line(), line(), "S(0)", "P(max)", {8, 4}, kInvalid, "cannot redistribute [Shard(0)] to [Partial(max)]"},
        Refusal{line(), line(), kUneven, "P", {8, 4}, kInvalid, "nothing but the same Partial becomes Partial(sum)"},
        Refusal{
            line(), line(), "P", "P(avg)", {8, 4}, kInvalid, "cannot redistribute [Partial(sum)] to [Partial(avg)]"},
        Refusal{grid(), grid(), "P, R", "R, P", {8, 4}, kInvalid, "becomes Partial(sum) on mesh dim 'b'"},
        Refusal{line(), DeviceMesh({4}, {"tp"}), "P", "P", {8, 4}, kInvalid, "becomes Partial(sum) on mesh dim 'tp'"},
        Refusal{grid(),
                grid(),
                "P, P(max)",
                "R, P(max)",
                {8, 4},
                kInvalid,
                "Partial(sum) on mesh dim 'a' stands outside Partial(max) and must be reduced after it"}));

INSTANTIATE_TEST_SUITE_P(
    Meshes, PlannerRefusals,
    ::testing::Values(
        Refusal{line(),
                DeviceMesh({4}, {"dp"}, {4, 5, 6, 7}),
                "S(0)",
                "R",
                {8, 4},
                kInvalid,
                "cannot redistribute from DeviceMesh((4,), ('dp',)) to DeviceMesh((4,), ('dp',), [4, 5, 6, 7]): the "
                "meshes must "
                "hold the same ranks"},
        Refusal{line(), DeviceMesh({3}), "S(0)", "R", {8, 4}, kInvalid, "the meshes must hold the same ranks"},
        Refusal{
            line(),
            grid(),
            kUneven,
            "R, R",
            {8, 4},
            kInvalid,
            "cannot redistribute [RaggedShard((0,), (1, 3, 0, 4))] to [Replicate(), Replicate()] on another mesh: a "
            "RaggedShard stays on its mesh"},
        Refusal{grid(), line(), "S(0), R", kUneven, {8, 4}, kInvalid, "a RaggedShard stays on its mesh"}));

INSTANTIATE_TEST_SUITE_P(
    Shapes, PlannerRefusals,
    ::testing::Values(
        Refusal{line(),
                line(),
                kUneven,
                "R",
                {6, 4},
                kInvalid,
                "RaggedShard local_units sum to 8 but dims (0,) of shape (6, 4) have 6 cells"},
        Refusal{line(), line(), "R", kUneven, {6, 4}, kInvalid, "have 6 cells, which must be a multiple of it"},
        Refusal{line(), line(), kUneven, "R", {6, 0}, kInvalid, "have 6 cells, which must be a multiple of it"},
        Refusal{line(),
                line(),
                "Ragged((0, 1, 2), (1*4))",
                "R",
                {8, 4},
                kInvalid,
                "RaggedShard dims (0, 1, 2) are more than the tensor's 2 dims"},
        Refusal{line(),
                line(),
                "S(2)",
                "R",
                {8, 4},
                ErrorCode::kOutOfRange,
                "Shard(2) is out of range for a tensor of 2 dims"},
        Refusal{line(),
                line(),
                "R",
                "S(-3)",
                {8, 4},
                ErrorCode::kOutOfRange,
                "Shard(-3) is out of range for a tensor of 2 dims"},
        Refusal{
            line(), line(), "S(0)", "R", {}, ErrorCode::kOutOfRange, "Shard(0) is out of range for a tensor of 0 dims"},
        Refusal{line(), line(), "R", "S(0)", {8, -4}, kInvalid, "global shape (8, -4) has the negative size -4"},
        Refusal{line(), line(), "R", "S(0)", {kHuge, 2}, kInvalid, "does not fit in int64"}));

}  // namespace
}  // namespace hyper_parallel
