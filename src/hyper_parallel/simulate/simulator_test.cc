#include "hyper_parallel/simulate/simulator.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hyper_parallel/redistribute/planner.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

Distribution distribution_of(const DeviceMesh& mesh, const std::string& placements, const Dims& shape) {
  return Distribution(Layout(mesh, parse_placements(placements)), shape);
}

Plan plan_of(const DeviceMesh& mesh, const std::string& from, const std::string& to, const Dims& shape) {
  return plan_redistribution(Layout(mesh, parse_placements(from)), Layout(mesh, parse_placements(to)), shape);
}

std::vector<double> counted(int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

TEST(Simulator_DistributeValues, RaggedShares_AreRunsAndTheZeroUnitRankIsEmpty) {
  const Shares shares =
      distribute_values(distribution_of(DeviceMesh({3}), "Ragged((0,), (1, 0, 2))", {3, 2}), counted(6));
  EXPECT_EQ(shares, (Shares{{0, {0, 1}}, {1, {}}, {2, {2, 3, 4, 5}}}));
}

TEST(Simulator_DistributeValues, ShardedColumns_AreRowMajorInEachShare) {
  const Shares shares = distribute_values(distribution_of(DeviceMesh({2}), "S(1)", {2, 3}), counted(6));
  EXPECT_EQ(shares, (Shares{{0, {0, 1, 3, 4}}, {1, {2, 5}}}));
}

TEST(Simulator_DistributeValues, PartialShares_ReduceToTheValue) {
  const DeviceMesh mesh({2});
  EXPECT_EQ(distribute_values(distribution_of(mesh, "P(sum)", {1}), {5}), (Shares{{0, {5}}, {1, {0}}}));
  EXPECT_EQ(distribute_values(distribution_of(mesh, "P(avg)", {1}), {5}), (Shares{{0, {10}}, {1, {0}}}));
  EXPECT_EQ(distribute_values(distribution_of(mesh, "P(max)", {1}), {5}), (Shares{{0, {5}}, {1, {5}}}));
}

TEST(Simulator_DistributeValues, WrongCount_Raises) {
  expect_error(ErrorCode::kInvalidArgument, "there are 5 values but shape (3, 2) has 6",
               [] { distribute_values(distribution_of(DeviceMesh({2}), "R", {3, 2}), counted(5)); });
}

TEST(Simulator_Run, Move_GivesTheTargetsShares) {
  const Plan plan = plan_of(DeviceMesh({3}, {"dp"}, {2, 0, 1}), "Ragged((0, 1), (1, 1, 2))", "S(1)", {5, 4});
  EXPECT_EQ(simulate(plan, distribute_values(plan.source, counted(20))), distribute_values(plan.target, counted(20)));
}

TEST(Simulator_Run, EachOp_CombinesItsShares) {
  const Shares shares = {{0, {1, 8}}, {1, {3, 2}}};
  const auto run = [&](const char* from) { return simulate(plan_of(DeviceMesh({2}), from, "R", {2}), shares).at(1); };
  EXPECT_EQ(run("P(sum)"), (std::vector<double>{4, 10}));
  EXPECT_EQ(run("P(avg)"), (std::vector<double>{2, 5}));
  EXPECT_EQ(run("P(max)"), (std::vector<double>{3, 8}));
  EXPECT_EQ(run("P(min)"), (std::vector<double>{1, 2}));
}

TEST(Simulator_Run, UnlikePartials_ReduceInnermostFirst) {
  // max within b, then the sum over a: max(1, 4) + max(3, 2) = 7, not max(1 + 3, 4 + 2) = 6.
  const Plan plan = plan_of(DeviceMesh({2, 2}, {"a", "b"}), "P, P(max)", "R, R", {1});
  const Shares result = simulate(plan, {{0, {1}}, {1, {4}}, {2, {3}}, {3, {2}}});
  EXPECT_EQ(result, (Shares{{0, {7}}, {1, {7}}, {2, {7}}, {3, {7}}}));
}

TEST(Simulator_Run, EmptyTensor_GivesEmptyShares) {
  const Plan plan = plan_of(DeviceMesh({2}), "Ragged((0,), (1, 1))", "S(1)", {0, 4});
  EXPECT_EQ(simulate(plan, {{0, {}}, {1, {}}}), (Shares{{0, {}}, {1, {}}}));
}

TEST(Simulator_BadShares, MissingRank_Raises) {
  expect_error(ErrorCode::kInvalidArgument, "there are 1 shares but the mesh has 2 ranks",
               [] { simulate(plan_of(DeviceMesh({2}), "S(0)", "R", {4}), {{0, {0, 1}}}); });
}

TEST(Simulator_BadShares, RankOutsideTheMesh_Raises) {
  expect_error(ErrorCode::kInvalidArgument, "there is a share of rank 5, which is not in DeviceMesh((2,), ('dim_0',))",
               [] { simulate(plan_of(DeviceMesh({2}), "S(0)", "R", {4}), {{0, {0, 1}}, {5, {2, 3}}}); });
}

TEST(Simulator_BadShares, WrongLength_Raises) {
  expect_error(ErrorCode::kInvalidArgument, "the share of rank 1 has 3 elements but the layout gives it 2",
               [] { simulate(plan_of(DeviceMesh({2}), "S(0)", "R", {4}), {{0, {0, 1}}, {1, {2, 3, 4}}}); });
}

TEST(Simulator_BadShares, WrongLength_RaisesAlsoWhereThereIsNothingToDo) {
  expect_error(ErrorCode::kInvalidArgument, "the share of rank 0 has 0 elements but the layout gives it 2",
               [] { simulate(plan_of(DeviceMesh({2}), "S(0)", "S(0)", {4}), {{0, {}}, {1, {2, 3}}}); });
}

TEST(Simulator_BadPlan, StepsThatDoNotFit_Raise) {
  Plan plan = plan_of(DeviceMesh({3}), "P", "R", {6});
  ASSERT_EQ(plan.steps.size(), 2u);
  plan.steps.erase(plan.steps.begin());  // the gather of something that nobody reduced
  const std::vector<double> share(6);
  expect_error(ErrorCode::kInternal, "internal error", [&] { simulate(plan, {{0, share}, {1, share}, {2, share}}); });
}

}  // namespace
}  // namespace hyper_parallel
