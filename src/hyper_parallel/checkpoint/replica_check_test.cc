#include "hyper_parallel/checkpoint/replica_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "tests/support/buffer_planners.h"
#include "tests/support/thread_exchange.h"

namespace hyper_parallel {
namespace {

using Strings = std::vector<std::string>;

// What each rank throws if it holds what `make_planner` gives.
Strings check_errors(int64_t size, const std::function<BufferSavePlanner(int64_t rank)>& make_planner) {
  return errors_of_ranks(size, [&](Exchange& exchange) {
    BufferSavePlanner planner = make_planner(exchange.rank());
    check_replicas(exchange, planner);
  });
}

PlannedTensor flat(const std::string& name, int64_t begin, int64_t end, int64_t numel) {
  return {name, DType::kU8, {numel}, {{{begin}, {end - begin}}}};
}

std::string differ(const std::string& ranks, const std::string& entry) {
  return str_cat("FailedPrecondition: ranks ", ranks, " differ in ", entry,
                 ", of which both are to hold the same; saving would keep one of them");
}

TEST(CheckReplicas, EqualReplicas_Pass) {
  for (const int64_t size : {1, 2, 4}) {
    EXPECT_EQ(check_errors(size,
                           [](int64_t) {
                             BufferSavePlanner planner;
                             planner.add(flat("w", 0, 4, 4), "same");
                             planner.add({"scalar", DType::kU8, {}, {{{}, {}}}}, "7");
                             planner.add({"empty", DType::kF32, {0, 3}, {}}, "");
                             planner.plan.values = {{"step", int64_t{3}},
                                                    {"loss", std::numeric_limits<double>::quiet_NaN()}};
                             return planner;
                           }),
              Strings(static_cast<size_t>(size)));
  }
}

TEST(CheckReplicas, DisjointBoxesAndNamesOfOneRank_Pass) {
  EXPECT_EQ(check_errors(3,
                         [](int64_t rank) {
                           BufferSavePlanner planner;
                           if (rank < 2) planner.add(flat("w", 2 * rank, 2 * rank + 2, 4), rank == 0 ? "ab" : "cd");
                           planner.add(flat(str_cat("own ", rank), 0, 1, 1), str_cat(rank));
                           planner.plan.values = {{str_cat("value ", rank), rank}};
                           return planner;
                         }),
            Strings(3));
}

TEST(CheckReplicas, NothingAtAll_Passes) {
  EXPECT_EQ(check_errors(2, [](int64_t) { return BufferSavePlanner(); }), Strings(2));
}

TEST(CheckReplicas, UnlikeBytesOfABox_RaiseOnEveryRankNamingBothRanksAndTheBox) {
  EXPECT_EQ(check_errors(4,
                         [](int64_t rank) {
                           BufferSavePlanner planner;
                           // Pairs (0, 2) and (1, 3) hold a half each.
                           const int64_t half = rank % 2;
                           planner.add(flat("layer.w", 2 * half, 2 * half + 2, 4), rank == 3 ? "x!" : "xy");
                           return planner;
                         }),
            Strings(4, differ("1 and 3", "the cells (2,)+(2,) of U8 tensor 'layer.w' of shape (4,)")));
}

TEST(CheckReplicas, SecondBoxOfARank_IsComparedToo) {
  EXPECT_EQ(check_errors(2,
                         [](int64_t rank) {
                           BufferSavePlanner planner;
                           planner.add({"w", DType::kU8, {2, 2}, {{{0, 0}, {1, 2}}, {{1, 0}, {1, 1}}}},
                                       rank == 0 ? "abc" : "abd");
                           return planner;
                         }),
            Strings(2, differ("0 and 1", "the cells (1, 0)+(1, 1) of U8 tensor 'w' of shape (2, 2)")));
}

TEST(CheckReplicas, BitsOfUnlikeZeros_Differ) {
  EXPECT_EQ(check_errors(2,
                         [](int64_t rank) {
                           BufferSavePlanner planner;
                           planner.plan.values = {{"x", rank == 0 ? 0.0 : -0.0}};
                           return planner;
                         }),
            Strings(2, differ("0 and 1", "the value 'x'")));
}

TEST(CheckReplicas, ValuesOfUnlikeType_Differ) {
  EXPECT_EQ(check_errors(3,
                         [](int64_t rank) {
                           BufferSavePlanner planner;
                           planner.plan.values = {{"same", true},
                                                  {"step", rank == 2 ? Value(true) : Value(int64_t{1})}};
                           return planner;
                         }),
            Strings(3, differ("0 and 2", "the value 'step'")));
}

TEST(CheckReplicas, UnlikeDtypeOrShape_IsLeftToPlanning) {
  EXPECT_EQ(check_errors(2,
                         [](int64_t rank) {
                           BufferSavePlanner planner;
                           planner.add({"d", rank == 0 ? DType::kU8 : DType::kI8, {1}, {{{0}, {1}}}}, str_cat(rank));
                           planner.add({"s", DType::kU8, {rank + 1}, {{{0}, {1}}}}, str_cat(rank));
                           return planner;
                         }),
            Strings(2));
}

TEST(CheckReplicas, FaultOfOneRanksPlanner_RaisesOnAll) {
  class FailingPlanner final : public BufferSavePlanner {
   public:
    SavePlan build_local_plan() override { raise(ErrorCode::kType, "'x' is a set"); }
  };
  EXPECT_EQ(errors_of_ranks(2,
                            [&](Exchange& exchange) {
                              BufferSavePlanner good;
                              FailingPlanner bad;
                              check_replicas(exchange, exchange.rank() == 1 ? bad : good);
                            }),
            Strings(2, "Type: comparing replicas failed on rank 1: 'x' is a set"));
}

}  // namespace
}  // namespace hyper_parallel
