#include "hyper_parallel/redistribute/plan.h"

#include <gtest/gtest.h>

#include "hyper_parallel/redistribute/planner.h"

namespace hyper_parallel {
namespace {

Plan plan_of(const DeviceMesh& mesh, const std::string& from, const std::string& to, const Dims& shape) {
  return plan_redistribution(Layout(mesh, parse_placements(from)), Layout(mesh, parse_placements(to)), shape);
}

const DeviceMesh& line() {
  static const DeviceMesh mesh({4}, {"dp"});
  return mesh;
}

TEST(Plan_Text, Move_NamesMeshSourceTargetAndStep) {
  EXPECT_EQ(to_string(plan_of(line(), "Ragged((0,), (1, 3, 0, 4))", "S(0)", {8, 4})),
            "redistribute (8, 4) on mesh (4,) (dp,)\n"
            "  from [RaggedShard((0,), (1, 3, 0, 4))]\n"
            "  to   [Shard(0)]\n"
            "  1. all_to_all: [RaggedShard((0,), (1, 3, 0, 4))] -> [Shard(0)]\n");
}

TEST(Plan_Text, ReduceAndGather_AreTwoNumberedSteps) {
  EXPECT_EQ(to_string(plan_of(line(), "P(avg)", "R", {8, 4})),
            "redistribute (8, 4) on mesh (4,) (dp,)\n"
            "  from [Partial(avg)]\n"
            "  to   [Replicate()]\n"
            "  1. reduce_scatter(avg) over 'dp': [Partial(avg)] -> [FlatSplit()]\n"
            "  2. all_gather: [FlatSplit()] -> [Replicate()]\n");
}

TEST(Plan_Text, EqualLayouts_SayNothingToDo) {
  EXPECT_EQ(to_string(plan_of(line(), "S(1)", "S(-1)", {8, 4})),
            "redistribute (8, 4) on mesh (4,) (dp,)\n"
            "  from [Shard(1)]\n"
            "  to   [Shard(1)]\n"
            "  nothing to do\n");
}

TEST(Plan_Text, AnotherTargetMesh_IsNamed) {
  const DeviceMesh grid({2, 2}, {"a", "b"});
  const Plan plan = plan_redistribution(Layout(line(), parse_placements("S(0)")),
                                        Layout(grid, parse_placements("S(1), S(0)")), {8, 4});
  EXPECT_EQ(to_string(plan),
            "redistribute (8, 4) on mesh (4,) (dp,)\n"
            "  from [Shard(0)]\n"
            "  to   [Shard(1), Shard(0)] on mesh (2, 2) (a, b)\n"
            "  1. all_to_all: [Shard(0)] -> [Shard(1), Shard(0)]\n");
}

TEST(Plan_Text, ManyUnits_AreCountedNotListed) {
  const Plan plan = plan_of(DeviceMesh({20}), "Ragged((0,), (1*20))", "R", {20});
  EXPECT_NE(to_string(plan).find("from [RaggedShard((0,), <20 units>)]\n"), std::string::npos) << to_string(plan);
}

TEST(Plan_ActionText, ReduceOverSeveralMeshDims_NamesEachOfThem) {
  const Plan plan = plan_of(DeviceMesh({2, 2}, {"dp", "tp"}), "P, P", "S(0), S(0)", {8, 4});
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(action_text(plan.steps[0]), "reduce_scatter(sum) over 'dp', 'tp'");
}

TEST(Plan_ActionText, ReduceOfUnlikeOps_NamesTheOpOfEachMeshDim) {
  const Plan plan = plan_of(DeviceMesh({2, 2}, {"dp", "tp"}), "P, P(avg)", "S(0), S(0)", {8, 4});
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(action_text(plan.steps[0]), "reduce_scatter(sum, avg) over 'dp', 'tp'");
}

TEST(Plan_IsLocal, Slice_IsLocalAndNoRound) {
  const Plan plan = plan_of(line(), "R", "Ragged((0,), (1, 3, 0, 4))", {8, 4});
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(action_text(plan.steps[0]), "slice");
  EXPECT_TRUE(is_local(plan.steps[0]));
  EXPECT_EQ(rounds(plan), 0);
}

TEST(Plan_IsLocal, ReduceOverOneRank_NeedsNoOtherRank) {
  const Plan plan = plan_of(DeviceMesh({1}), "P", "R", {8, 4});
  ASSERT_FALSE(plan.steps.empty());
  EXPECT_TRUE(is_local(plan.steps[0]));
  EXPECT_EQ(rounds(plan), 0);
}

TEST(Plan_Rounds, StepsThatCommunicate_AreCounted) {
  EXPECT_EQ(rounds(plan_of(line(), "P", "R", {8, 4})), 2);
  EXPECT_EQ(rounds(plan_of(line(), "P", "S(0)", {8, 4})), 1);
  EXPECT_EQ(rounds(plan_of(line(), "S(0)", "S(0)", {8, 4})), 0);
}

TEST(Plan_Equality, EqualInputs_GiveEqualPlans_UnlikeOnesDoNot) {
  const Plan plan = plan_of(line(), "Ragged((0,), (1, 3, 0, 4))", "S(0)", {8, 4});
  EXPECT_EQ(plan, plan_of(DeviceMesh({4}, {"dp"}), "Ragged((0,), (1, 3, 0, 4))", "S(0)", {8, 4}));
  EXPECT_FALSE(plan == plan_of(line(), "Ragged((0,), (3, 1, 0, 4))", "S(0)", {8, 4}));
  EXPECT_FALSE(plan == plan_of(line(), "Ragged((0,), (1, 3, 0, 4))", "S(0)", {8, 8}));
  EXPECT_FALSE(plan == plan_of(DeviceMesh({4}, {"tp"}), "Ragged((0,), (1, 3, 0, 4))", "S(0)", {8, 4}));
}

}  // namespace
}  // namespace hyper_parallel
