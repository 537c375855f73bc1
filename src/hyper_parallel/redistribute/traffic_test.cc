#include "hyper_parallel/redistribute/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "hyper_parallel/redistribute/planner.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

Plan plan_of(const DeviceMesh& mesh, const std::string& from, const std::string& to, const Dims& shape) {
  return plan_redistribution(Layout(mesh, parse_placements(from)), Layout(mesh, parse_placements(to)), shape);
}

const DeviceMesh& line() {
  static const DeviceMesh mesh({4}, {"dp"});
  return mesh;
}

TEST(Traffic_Rank, IntervalMessages_TakeNoExtraMemory) {
  const Plan plan = plan_of(line(), "Ragged((0,), (1, 3, 0, 4))", "S(0)", {8, 4});
  const RankTraffic own = traffic(plan, 3);  // holds rows 4 .. 7, keeps 6 and 7
  EXPECT_EQ(own.sent, 8);
  EXPECT_EQ(own.received, 0);
  EXPECT_EQ(own.messages, 1);
  EXPECT_EQ(own.peak_extra, 0);
  EXPECT_EQ(traffic(plan, 2).received, 8);
}

TEST(Traffic_Rank, PackedMessages_AreExtraMemory) {
  // Four rows of four over two ranks: what goes out is strided in the source, what comes in is whole rows of the
  // target.
  const RankTraffic own = traffic(plan_of(DeviceMesh({2}), "S(0)", "S(1)", {4, 4}), 0);
  EXPECT_EQ(own.sent, 4);
  EXPECT_EQ(own.peak_extra, 4);
}

TEST(Traffic_Rank, Reduction_KeepsEachReceivedShareApart) {
  const RankTraffic own = traffic(plan_of(line(), "P", "S(0)", {8, 4}), 1);
  EXPECT_EQ(own.received, 3 * 8);
  EXPECT_EQ(own.peak_extra, 3 * 8);
}

TEST(Traffic_Rank, ResultBetweenTwoSteps_IsExtraMemory) {
  // reduce_scatter: three received shares of 8 and the result of 8; all_gather: the result alone.
  const RankTraffic own = traffic(plan_of(line(), "P", "R", {8, 4}), 1);
  EXPECT_EQ(own.received, 3 * 8 + 3 * 8);
  EXPECT_EQ(own.peak_extra, 4 * 8);
}

TEST(Traffic_Rank, LocalSlice_MovesNothing) {
  const RankTraffic own = traffic(plan_of(line(), "R", "Ragged((0,), (1, 3, 0, 4))", {8, 4}), 1);
  EXPECT_EQ(own.sent, 0);
  EXPECT_EQ(own.received, 0);
  EXPECT_EQ(own.messages, 0);
  EXPECT_EQ(own.peak_extra, 0);
}

TEST(Traffic_Mesh, Totals_AreTheSumsAndMaximaOverRankPlans) {
  const DeviceMesh mesh({2, 3}, {"a", "b"}, {4, 0, 2, 5, 3, 1});
  for (const auto& [from, to] :
       {std::pair("S(1), S(0)", "S(0), S(0)"), std::pair("R, Ragged((0, 1), (1, 0, 4))", "S(1), R"),
        std::pair("S(0), R", "R, S(1)"), std::pair("P, S(1)", "R, S(0)"), std::pair("P, P(max)", "R, R")}) {
    const Plan plan = plan_of(mesh, from, to, {5, 4});
    int64_t sent = 0;
    int64_t received = 0;
    int64_t most = 0;
    for (const int64_t rank : mesh.ranks()) {
      const RankTraffic own = traffic(plan, rank);
      sent += own.sent;
      received += own.received;
      most = std::max(most, own.received);
    }
    const MeshTraffic whole = mesh_traffic(plan);
    EXPECT_EQ(whole.total_received, received) << from << " to " << to;
    EXPECT_EQ(whole.total_received, sent) << from << " to " << to;
    EXPECT_EQ(whole.max_received, most) << from << " to " << to;
    EXPECT_EQ(whole.rounds, rounds(plan)) << from << " to " << to;
    EXPECT_GE(whole.total_received, whole.lower_bound) << from << " to " << to;
  }
}

TEST(Traffic_LowerBound, WithoutPartial_IsWhatEachRankLacks) {
  const Plan plan = plan_of(line(), "Ragged((0,), (1, 3, 0, 4))", "S(0)", {8, 4});
  EXPECT_EQ(received_lower_bound(plan, 0), 4);
  EXPECT_EQ(received_lower_bound(plan, 1), 0);
  EXPECT_EQ(received_lower_bound(plan, 2), 8);
  EXPECT_EQ(received_lower_bound(plan, 3), 0);
  EXPECT_EQ(total_lower_bound(plan), 12);
}

TEST(Traffic_LowerBound, PendingReduction_BoundsTheMeshAndNoSingleRank) {
  const Plan scatter = plan_of(line(), "P", "S(0)", {8, 4});
  EXPECT_EQ(received_lower_bound(scatter, 0), std::nullopt);
  EXPECT_EQ(total_lower_bound(scatter), 3 * 32);
  EXPECT_EQ(total_lower_bound(plan_of(line(), "P", "R", {8, 4})), 3 * 32 + 3 * 32);
}

TEST(Traffic_LowerBound, PartialThatStays_IsReducedByNobody) {
  const Plan plan = plan_of(DeviceMesh({2, 2}), "P, S(0)", "P, S(1)", {4, 4});
  EXPECT_EQ(received_lower_bound(plan, 0), 4);
  EXPECT_EQ(total_lower_bound(plan), 16);
}

TEST(Traffic_Overflow, CountBeyondInt64_Raises) {
  const int64_t large = std::numeric_limits<int64_t>::max() / 2;
  const Plan plan = plan_of(line(), "S(0)", "R", {large});
  expect_error(ErrorCode::kInvalidArgument, "does not fit in int64", [&] { mesh_traffic(plan); });
}

}  // namespace
}  // namespace hyper_parallel
