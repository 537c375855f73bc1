#include "hyper_parallel/operations/propagate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/operations/contraction_rule.h"
#include "hyper_parallel/operations/joining_rules.h"
#include "hyper_parallel/operations/pointwise_rule.h"
#include "hyper_parallel/operations/reduction_rule.h"
#include "hyper_parallel/operations/shape_rules.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

const DeviceMesh& line() {
  static const DeviceMesh mesh({4}, {"dp"});
  return mesh;
}

const DeviceMesh& grid() {
  static const DeviceMesh mesh({2, 2}, {"a", "b"});
  return mesh;
}

Layout layout_of(const DeviceMesh& mesh, const char* placements) { return Layout(mesh, parse_placements(placements)); }

/// "[S(0), R, P(max)]".
std::string text_of(const Layout& layout) {
  std::vector<std::string> texts;
  for (const Placement& placement : layout.placements()) {
    const auto* shard = std::get_if<Shard>(&placement);
    const auto* partial = std::get_if<Partial>(&placement);
    texts.push_back(shard     ? str_cat("S(", shard->dim, ")")
                    : partial ? str_cat("P(", to_string(partial->op), ")")
                              : "R");
  }
  return str_cat("[", join(texts, ", "), "]");
}

Propagation run(const Rule& rule, const DeviceMesh& mesh, const std::vector<const char*>& placements,
                std::optional<size_t> written = std::nullopt) {
  std::vector<GivenOperand> operands;
  for (const char* text : placements) operands.push_back({"x", layout_of(mesh, text), 4});
  return propagate("op", rule, operands, written);
}

/// "what each operand becomes -> the results".
std::string choice(const Propagation& propagation) {
  std::vector<std::string> operands;
  std::vector<std::string> results;
  for (const PreparedOperand& operand : propagation.operands) operands.push_back(text_of(operand.layout));
  for (const Layout& result : propagation.results) results.push_back(text_of(result));
  return str_cat(join(operands, " "), " -> ", join(results, " "));
}

std::string choice(const Rule& rule, const DeviceMesh& mesh, const std::vector<const char*>& placements) {
  return choice(run(rule, mesh, placements));
}

std::string gradients(const Propagation& propagation) {
  std::vector<std::string> texts;
  for (const PreparedOperand& operand : propagation.operands) texts.push_back(text_of(operand.gradient));
  return join(texts, " ");
}

Rule add(const Dims& a, const Dims& b) { return pointwise_rule(std::vector<Dims>{a, b}); }

Rule sum_of(const Dims& shape, const std::vector<int64_t>& dims) {
  return reduction_rule(shape, dims, KeepDims::kNo, ReduceOp::kSum);
}

TEST(Propagate_Axes, OperandsThatLieAlike_StayAsTheyLie) {
  EXPECT_EQ(choice(add({6, 4}, {6, 4}), line(), {"S(1)", "S(1)"}), "[S(1)] [S(1)] -> [S(1)]");
  EXPECT_EQ(choice(add({6, 4}, {6, 4}), grid(), {"S(0), S(0)", "S(0), S(0)"}),
            "[S(0), S(0)] [S(0), S(0)] -> [S(0), S(0)]");
  EXPECT_EQ(choice(add({6, 4}, {6, 4}), line(), {"R", "R"}), "[R] [R] -> [R]");
}

TEST(Propagate_Axes, ReplicatedOperand_IsSlicedBesideAShardedOne) {
  EXPECT_EQ(choice(add({6, 4}, {6, 4}), line(), {"R", "S(1)"}), "[S(1)] [S(1)] -> [S(1)]");
  EXPECT_EQ(choice(add({6, 4}, {4}), line(), {"S(1)", "R"}), "[S(1)] [S(0)] -> [S(1)]");
  EXPECT_EQ(choice(add({6, 4}, {4}), line(), {"S(0)", "R"}), "[S(0)] [R] -> [S(0)]");
  EXPECT_EQ(choice(add({6, 4}, {6, 4}), grid(), {"S(0), R", "R, S(1)"}), "[S(0), S(1)] [S(0), S(1)] -> [S(0), S(1)]");
}

TEST(Propagate_Axes, ReducedAxis_GivesPartial) {
  EXPECT_EQ(choice(matmul_rule({6, 4}, {4, 5}), line(), {"S(1)", "S(0)"}), "[S(1)] [S(0)] -> [P(sum)]");
  EXPECT_EQ(choice(sum_of({6, 4}, {0}), grid(), {"S(0), S(1)"}), "[S(0), S(1)] -> [P(sum), S(0)]");
  EXPECT_EQ(choice(reduction_rule({6, 4}, std::vector<int64_t>{1}, KeepDims::kNo, ReduceOp::kMax), line(), {"S(1)"}),
            "[S(1)] -> [P(max)]");
}

TEST(Propagate_Axes, ReducedAxis_IsNotMovedFor_HoweverCheap) {
  // To cut the first by its columns instead would move 12 cells, to gather the second 48.
  EXPECT_EQ(choice(matmul_rule({2, 8}, {8, 8}), line(), {"S(0)", "S(0)"}), "[S(0)] [R] -> [S(0)]");
  EXPECT_EQ(choice(matmul_rule({2, 8}, {8, 8}), line(), {"R", "S(0)"}), "[S(1)] [S(0)] -> [P(sum)]");
}

TEST(Propagate_Axes, DimThatIsNeededWhole_IsGathered) {
  EXPECT_EQ(choice(along_rule({6, 4}, std::vector<int64_t>{1}), line(), {"S(1)"}), "[R] -> [R]");
  EXPECT_EQ(choice(along_rule({6, 4}, std::vector<int64_t>{1}), grid(), {"S(0), S(1)"}), "[S(0), R] -> [S(0), R]");
}

TEST(Propagate_Axes, SeveralResults_LieAlike) {
  EXPECT_EQ(choice(split_rule({6, 4}, 0, Dims{4, 2}), line(), {"S(1)"}), "[S(1)] -> [S(1)] [S(1)]");
}

TEST(Propagate_Cost, SmallerOperand_Moves) {
  EXPECT_EQ(choice(add({8, 4}, {4}), line(), {"S(1)", "S(0)"}), "[S(1)] [S(0)] -> [S(1)]");
  // Rows of the first cost an all-to-all of 24 cells; gathering the second for them 12.
  EXPECT_EQ(choice(add({8, 4}, {4}), line(), {"S(0)", "S(0)"}), "[S(0)] [R] -> [S(0)]");
  EXPECT_EQ(choice(matmul_rule({8, 8}, {8, 2}), line(), {"S(0)", "S(1)"}), "[S(0)] [R] -> [S(0)]");
  EXPECT_EQ(choice(matmul_rule({2, 8}, {8, 8}), line(), {"S(0)", "S(1)"}), "[R] [S(1)] -> [S(1)]");
}

TEST(Propagate_Cost, ItemBytes_AreCounted) {
  const Rule rule = add({8, 4}, {8, 4});
  const auto with_bytes = [&](int64_t first, int64_t second) {
    const std::vector<GivenOperand> operands{{"x", layout_of(line(), "S(0)"), first},
                                             {"y", layout_of(line(), "S(1)"), second}};
    return choice(propagate("op", rule, operands));
  };
  EXPECT_EQ(with_bytes(8, 2), "[S(0)] [S(0)] -> [S(0)]");
  EXPECT_EQ(with_bytes(2, 8), "[S(1)] [S(1)] -> [S(1)]");
}

TEST(Propagate_Cost, Tie_GoesToTheFirstOperand) {
  EXPECT_EQ(choice(add({8, 4}, {8, 4}), line(), {"S(0)", "S(1)"}), "[S(0)] [S(0)] -> [S(0)]");
  EXPECT_EQ(choice(add({8, 4}, {8, 4}), line(), {"S(1)", "S(0)"}), "[S(1)] [S(1)] -> [S(1)]");
}

TEST(Propagate_Cost, OperandsWithoutCells_MoveInTheFewestRounds) {
  EXPECT_EQ(choice(add({0, 4}, {0, 4}), line(), {"S(0)", "S(1)"}), "[S(0)] [S(0)] -> [S(0)]");
}

TEST(Propagate_EvenCut, EvenBlocks_StayCut) {
  EXPECT_EQ(choice(view_rule({4, 6}, {24}), line(), {"S(0)"}), "[S(0)] -> [S(0)]");
  EXPECT_EQ(choice(view_rule({4, 6}, {24}), grid(), {"S(0), S(0)"}), "[S(0), S(0)] -> [S(0), S(0)]");
  EXPECT_EQ(choice(view_rule({6, 4}, {3, 2, 4}), grid(), {"R, S(1)"}), "[R, S(1)] -> [R, S(2)]");
}

TEST(Propagate_EvenCut, UnevenBlocks_AreGathered) {
  EXPECT_EQ(choice(view_rule({6, 4}, {24}), line(), {"S(0)"}), "[R] -> [R]");
  EXPECT_EQ(choice(view_rule({6, 4}, {24}), line(), {"S(1)"}), "[R] -> [R]");
}

TEST(Propagate_EvenCut, NestedBlocks_KeepWhatDivides) {
  // 6 rows over 4 ranks are uneven, over 2 not. Keeping the outer mesh dim gathers as much as keeping the inner one
  // moves, or less.
  const Propagation kept = run(view_rule({6, 4}, {24}), grid(), {"S(0), S(0)"});
  EXPECT_EQ(choice(kept), "[S(0), R] -> [S(0), R]");
}

TEST(Propagate_Pending, EveryOperandAlike_StaysPending) {
  EXPECT_EQ(choice(view_rule({6, 4}, {4, 6}), line(), {"P(max)"}), "[P(max)] -> [P(max)]");
  EXPECT_EQ(choice(cat_rule(std::vector<Dims>{{6}, {2}}, 0), line(), {"P", "P"}), "[P(sum)] [P(sum)] -> [P(sum)]");
  EXPECT_EQ(choice(sum_of({6, 4}, {1}), grid(), {"P(avg), S(1)"}), "[P(avg), S(1)] -> [P(avg), P(sum)]");
}

TEST(Propagate_Pending, OneFactor_StaysPending) {
  EXPECT_EQ(choice(matmul_rule({6, 4}, {4, 5}), line(), {"P", "R"}), "[P(sum)] [R] -> [P(sum)]");
  EXPECT_EQ(choice(matmul_rule({6, 4}, {4, 5}), line(), {"R", "P(avg)"}), "[R] [P(avg)] -> [P(avg)]");
  EXPECT_EQ(choice(matmul_rule({6, 4}, {4, 5}), line(), {"P", "S(0)"}), "[P(sum)] [R] -> [P(sum)]");
  EXPECT_EQ(choice(embedding_rule({9, 4}, {6}), grid(), {"P(max), S(1)", "S(0), R"}),
            "[P(max), S(1)] [R, R] -> [P(max), S(1)]");
}

struct Refusal {
  const char* what;
  Rule rule;
  std::vector<const char*> placements;
  const char* carrier;
};

TEST(Propagate_Pending, WhatDoesNotCommute_RaisesWithTheArgument) {
  const Rule biased = linear_rule({6, 4}, {5, 4}, Dims{5});
  const std::vector<Refusal> refusals{
      {"a cell operation", add({6}, {6}), {"P", "P"}, "'x0', whose placements are [Partial(sum)]"},
      {"a product of two", matmul_rule({6, 4}, {4, 5}), {"P", "P"}, "'x0', whose placements are [Partial(sum)]"},
      {"a product of a max", matmul_rule({6, 4}, {4, 5}), {"R", "P(max)"}, "'x1', whose placements are [Partial(max)]"},
      {"an addend", biased, {"R", "R", "P"}, "'x2', whose placements are [Partial(sum)]"},
      {"a mean beside an addend", biased, {"P(avg)", "R", "R"}, "'x0', whose placements are [Partial(avg)]"},
      {"a sum beside a whole",
       cat_rule(std::vector<Dims>{{6}, {2}}, 0),
       {"P", "R"},
       "'x0', whose placements are [Partial(sum)]"},
      {"a sum beside a mean", cat_rule(std::vector<Dims>{{6}, {2}}, 0), {"P", "P(avg)"}, "'x0'"},
      {"a sum of a max", sum_of({6}, {0}), {"P(max)"}, "'x0', whose placements are [Partial(max)]"},
      {"softmax", along_rule({6}, std::vector<int64_t>{0}), {"P"}, "'x0', whose placements are [Partial(sum)]"},
      {"an index", embedding_rule({9, 4}, {6}), {"R", "P"}, "'x1', whose placements are [Partial(sum)]"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.what);
    const std::vector<std::string> names{"x0", "x1", "x2"};
    std::vector<GivenOperand> operands;
    for (size_t i = 0; i < refusal.placements.size(); ++i) {
      operands.push_back({names[i], layout_of(line(), refusal.placements[i]), 4});
    }
    expect_error(kInvalid,
                 str_cat("operation 'op' with these arguments does not commute with the pending reduction of argument ",
                         refusal.carrier),
                 [&] { propagate("op", refusal.rule, operands); });
  }
}

TEST(Propagate_Pending, Refusal_SaysWhatToDo) {
  expect_error(kInvalid, "; redistribute it to Replicate() first", [] { run(add({6}, {6}), line(), {"P", "R"}); });
}

TEST(Propagate_AddedOnce, AddendOfShares_IsAddedByTheFirstRank) {
  const Rule biased = linear_rule({6, 4}, {5, 4}, Dims{5});
  const Propagation row = run(biased, line(), {"S(1)", "S(1)", "R"});
  EXPECT_EQ(choice(row), "[S(1)] [S(1)] [R] -> [P(sum)]");
  EXPECT_THAT(row.operands[0].added_once, IsEmpty());
  EXPECT_THAT(row.operands[2].added_once, ElementsAre(0));
  const Propagation pending = run(biased, grid(), {"P, S(1)", "R, S(1)", "R, R"});
  EXPECT_EQ(text_of(pending.results[0]), "[P(sum), P(sum)]");
  EXPECT_THAT(pending.operands[2].added_once, ElementsAre(0, 1));
}

TEST(Propagate_AddedOnce, AddendOfWholeResults_IsAddedByAll) {
  const Rule biased = linear_rule({6, 4}, {5, 4}, Dims{5});
  for (const char* weight : {"R", "S(0)"}) {
    EXPECT_THAT(run(biased, line(), {"R", weight, "R"}).operands[2].added_once, IsEmpty()) << weight;
  }
  EXPECT_THAT(run(biased, line(), {"S(0)", "R", "R"}).operands[2].added_once, IsEmpty());
}

TEST(Propagate_Gradient, OperandThatIsWholeWhereTheWorkIsShared_IsSummed) {
  EXPECT_EQ(gradients(run(matmul_rule({6, 4}, {4, 5}), line(), {"S(0)", "R"})), "[S(0)] [P(sum)]");
  EXPECT_EQ(gradients(run(matmul_rule({6, 4}, {4, 5}), grid(), {"S(0), S(1)", "R, S(0)"})),
            "[S(0), S(1)] [P(sum), S(0)]");
  EXPECT_EQ(gradients(run(add({6, 4}, {4}), line(), {"S(0)", "R"})), "[S(0)] [P(sum)]");
}

TEST(Propagate_Gradient, WholeWork_HasEqualGradientsOnAllRanks) {
  EXPECT_EQ(gradients(run(add({6, 4}, {4}), line(), {"R", "R"})), "[R] [R]");
  EXPECT_EQ(gradients(run(along_rule({6}, std::vector<int64_t>{0}), line(), {"S(0)"})), "[R]");
}

TEST(Propagate_Gradient, PendingOperand_HasThatOfItsShares) {
  EXPECT_EQ(gradients(run(matmul_rule({6, 4}, {4, 5}), line(), {"P", "R"})), "[R] [P(sum)]");
  EXPECT_EQ(gradients(run(view_rule({6}, {6}), line(), {"P(max)"})), "[R]");
}

TEST(Propagate_Written, Operand_StaysAsItLies) {
  EXPECT_EQ(choice(run(add({8, 4}, {8, 4}), line(), {"S(1)", "S(0)"}, 0)), "[S(1)] [S(1)] -> [S(1)]");
  EXPECT_EQ(choice(run(add({8, 4}, {8, 4}), line(), {"R", "S(0)"}, 0)), "[R] [R] -> [R]");
  EXPECT_EQ(choice(run(add({8, 4}, {4}), grid(), {"S(0), R", "R, S(0)"}, 0)), "[S(0), R] [R, R] -> [S(0), R]");
}

TEST(Propagate_Written, ResultThatLiesOtherwise_Raises) {
  expect_error(kInvalid,
               "operation 'op': argument 'x' of shape (4,) is written, but the result of shape (6, 4) cannot lie as it "
               "does: [Shard(0)]; redistribute it or the other operands",
               [] { run(add({4}, {6, 4}), line(), {"S(0)", "R"}, 0); });
}

TEST(Propagate_Meshes, UnlikeMeshes_Raise) {
  const std::vector<GivenOperand> operands{{"self", layout_of(line(), "R"), 4},
                                           {"other", layout_of(grid(), "R, R"), 4}};
  expect_error(kInvalid,
               "operation 'add': argument 'other' lies on DeviceMesh((2, 2), ('a', 'b')) but argument 'self' on "
               "DeviceMesh((4,), ('dp',)); the operands' meshes must be equal",
               [&] { propagate("add", add({6}, {6}), operands); });
}

TEST(Propagate_OneRank, Shard_StaysAShard) {
  const DeviceMesh alone({1});
  EXPECT_EQ(choice(matmul_rule({6, 4}, {4, 5}), alone, {"S(1)", "S(0)"}), "[S(1)] [S(0)] -> [P(sum)]");
  EXPECT_EQ(choice(view_rule({5, 3}, {15}), alone, {"S(0)"}), "[S(0)] -> [S(0)]");
}

TEST(Propagate_Layouts, UnchangedOperand_KeepsItsLayout) {
  const std::vector<GivenOperand> operands{{"x", layout_of(line(), "S(0)"), 4}};
  const Propagation propagation = propagate("op", view_rule({6}, {6}), operands);
  EXPECT_EQ(propagation.operands[0].layout, operands[0].layout);
  EXPECT_EQ(propagation.results[0], operands[0].layout);
  EXPECT_EQ(propagation, propagate("op", view_rule({6}, {6}), operands));
}

}  // namespace
}  // namespace hyper_parallel
