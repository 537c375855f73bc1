#include "hyper_parallel/redistribute/message_traffic.h"

#include <gtest/gtest.h>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/redistribute/planner.h"

namespace hyper_parallel {
namespace {

Plan plan_of(const DeviceMesh& mesh, const std::string& from, const std::string& to, const Dims& shape) {
  return plan_redistribution(Layout(mesh, parse_placements(from)), Layout(mesh, parse_placements(to)), shape);
}

TEST(MessageTraffic_Ragged, BusiestRankAndMessages_AreCounted) {
  const DeviceMesh mesh({4});
  // Rows 1, 3, 0, 4 to 2, 2, 2, 2: rank 1 sends a row to rank 0, rank 3 two rows to rank 2.
  EXPECT_EQ(message_traffic(plan_of(mesh, "Ragged((0,), (1, 3, 0, 4))", "S(0)", {8, 4})), (MessageTraffic{2, 8, 0}));
}

TEST(MessageTraffic_NoStep, EqualLayouts_SendNothing) {
  const Plan plan = plan_of(DeviceMesh({4}), "S(0)", "S(0)", {8, 4});
  EXPECT_EQ(message_traffic(plan), (MessageTraffic{0, 0, 0}));
  EXPECT_EQ(max_messages(plan), 0);
}

TEST(MaxMessages_Gather, FullShares_AreCountedExactly) {
  EXPECT_EQ(max_messages(plan_of(DeviceMesh({4}), "S(0)", "R", {8, 4})), 4 * 3);
  EXPECT_EQ(max_messages(plan_of(DeviceMesh({2, 2}), "S(0), S(0)", "R, R", {5, 3})), 4 * 3);
  EXPECT_EQ(max_messages(plan_of(DeviceMesh({2, 2}), "R, S(1)", "R, R", {5, 3})), 4);
}

TEST(MaxMessages_Reduce, EmptyShares_GetNoMessage) {
  const Plan plan = plan_of(DeviceMesh({4}), "P", "Ragged((0,), (1, 3, 0, 4))", {8, 4});
  EXPECT_EQ(max_messages(plan), 3 * 3);
  EXPECT_EQ(message_traffic(plan).messages, 3 * 3);
}

TEST(MaxMessages_Table, Messages_AreNeverMore) {
  const DeviceMesh mesh({2, 3}, {"a", "b"}, {4, 0, 2, 5, 3, 1});
  for (const auto& [from, to] :
       {std::pair("S(1), S(0)", "S(0), S(0)"), std::pair("S(0), S(0)", "S(1), S(0)"), std::pair("S(0), S(0)", "R, R"),
        std::pair("R, Ragged((0, 1), (1, 0, 4))", "S(1), R"), std::pair("S(1), R", "R, Ragged((0, 1), (1, 0, 4))"),
        std::pair("R, Ragged((0, 1), (1, 0, 4))", "Ragged((0,), (2, 3)), R"), std::pair("P, S(1)", "R, S(0)"),
        std::pair("P, P(max)", "R, R"), std::pair("P, P", "S(1), S(1)")}) {
    for (const Dims& shape : {Dims{5, 4}, Dims{5, 0}, Dims{5, 4, 3}, Dims{10, 1}}) {
      const Plan plan = plan_of(mesh, from, to, shape);
      EXPECT_LE(message_traffic(plan).messages, max_messages(plan))
          << from << " to " << to << " of " << tuple_text(shape);
    }
  }
}

TEST(MaxMessages_LargeMesh, IntervalLayouts_HaveAFewForEachRank) {
  const DeviceMesh mesh({1000});
  const char* const uneven = "Ragged((0,), (1*500, 3*500))";
  for (const auto& [from, to] :
       {std::pair(uneven, "S(0)"), std::pair("S(0)", uneven), std::pair(uneven, "Ragged((0,), (3*500, 1*500))")}) {
    EXPECT_LE(max_messages(plan_of(mesh, from, to, {4000, 3})), 4 * 1000) << from << " to " << to;
  }
}

TEST(MaxMessages_LargeMesh, AllGatherOf100000Ranks_IsCountedWithoutListing) {
  EXPECT_EQ(max_messages(plan_of(DeviceMesh({100'000}), "S(0)", "R", {100'000})), int64_t{100'000} * 99'999);
}

}  // namespace
}  // namespace hyper_parallel
