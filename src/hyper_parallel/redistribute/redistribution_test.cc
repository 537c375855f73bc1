#include "hyper_parallel/redistribute/redistribution.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using Moves = std::vector<Redistribution>;

const DeviceMesh& mesh() {
  static const DeviceMesh value({2, 3}, {"dp", "tp"});
  return value;
}

/// Also layouts that no user may ask for.
Layout lay(const std::string& placements) {
  return Layout::with_partial_beside_ragged(mesh(), parse_placements(placements));
}

/// A redistribution inside: its result's gradient lies as `gradient_layout` says.
Redistribution move(const std::string& source, const std::string& target, const Dims& shape = {6, 4}) {
  return {lay(source), lay(target), gradient_layout(lay(target)), shape};
}

TEST(GradientLayout, IsTheTensorsWithPartialReplicated) {
  EXPECT_EQ(gradient_layout(lay("S(0), R")), lay("S(0), R"));
  EXPECT_EQ(gradient_layout(lay("P(max), S(1)")), lay("R, S(1)"));
  EXPECT_EQ(gradient_layout(lay("P, P(avg)")), lay("R, R"));
  EXPECT_EQ(gradient_layout(lay("Ragged((0,), (1, 2)), P")), lay("Ragged((0,), (1, 2)), R"));
}

TEST(LeavingLayout, SumsWhereReplicasMayDiffer) {
  EXPECT_EQ(leaving_layout(lay("S(0), R")), lay("S(0), P"));
  EXPECT_EQ(leaving_layout(lay("P(max), S(1)")), lay("R, S(1)"));
  EXPECT_EQ(leaving_layout(lay("Ragged((0,), (1, 2)), R")), lay("Ragged((0,), (1, 2)), P"));
}

TEST(OutsideGradientLayout, WithoutPlacements_IsTheLeavingLayout) {
  EXPECT_EQ(outside_gradient_layout(lay("S(0), R"), std::nullopt, 2), lay("S(0), P"));
}

TEST(OutsideGradientLayout, Placements_AreTaken) {
  const auto said = [](const std::string& placements, const std::string& gradient) {
    return outside_gradient_layout(lay(placements), parse_placements(gradient), 2);
  };
  EXPECT_EQ(said("S(1), R", "S(-1), R"), lay("S(1), R"));
  EXPECT_EQ(said("R, P(max)", "P(avg), P(max)"), lay("P(avg), P(max)"));
  EXPECT_EQ(said("Ragged((0,), (1, 2)), R", "Ragged((0,), (1, 2)), P"), lay("Ragged((0,), (1, 2)), P"));
}

TEST(OutsideGradientLayout, PlacementsThatDoNotFit_AreRefused) {
  const auto said = [](const std::string& gradient) {
    return error_of([&] { outside_gradient_layout(lay("S(1), R"), parse_placements(gradient), 2); });
  };
  EXPECT_EQ(said("S(1)"), "InvalidArgument: grad_placements [Shard(1)] are 1 but the mesh has 2 dims");
  EXPECT_EQ(
      said("R, R"),
      "InvalidArgument: grad_placements have Replicate() on mesh dim 'dp' where the tensor is Shard(1); the gradient "
      "must lie as the tensor, or be Replicate(), Partial(sum) or Partial(avg) where that is whole");
  EXPECT_EQ(said("S(1), P(max)"),
            "InvalidArgument: grad_placements have Partial(max) on mesh dim 'tp' where the tensor is Replicate(); the "
            "gradient must lie as the tensor, or be Replicate(), Partial(sum) or Partial(avg) where that is whole");
  EXPECT_EQ(said("S(5), R"), "OutOfRange: Shard(5) is out of range for a tensor of 2 dims");
}

TEST(Redistribution, Folded_HasNoNegativeShardDim) {
  EXPECT_EQ(folded(move("S(-1), R", "S(-2), R")), move("S(1), R", "S(0), R"));
  EXPECT_EQ(error_of([] { folded(move("S(2), R", "R, R")); }),
            "OutOfRange: Shard(2) is out of range for a tensor of 2 dims");
}

TEST(Redistribution, WhereNothingMoves_IsTheIdentity) {
  EXPECT_TRUE(is_identity(move("S(0), R", "S(0), R")));
  EXPECT_FALSE(is_identity(move("S(0), R", "R, R")));
  EXPECT_FALSE(is_identity({lay("S(0), R"), lay("S(0), R"), leaving_layout(lay("S(0), R")), {6, 4}}));
  EXPECT_TRUE(is_identity(move("P(max), R", "P(max), R")));
}

TEST(Redistribution, Backward_LeadsFromTheIncomingToTheSharesGradient) {
  EXPECT_EQ(backward_of(move("S(0), R", "R, S(1)")), move("R, S(1)", "S(0), R"));
  EXPECT_EQ(backward_of(move("P, R", "S(0), R")), move("S(0), R", "R, R"));
  const Layout whole = lay("R, R");
  EXPECT_EQ(backward_of({lay("S(0), R"), whole, leaving_layout(whole), {6, 4}}), move("P, P", "S(0), R"));
}

TEST(Redistribution, BackwardOfBackward_IsTheMoveWhereNothingIsPending) {
  const Redistribution there = move("S(0), S(1)", "Ragged((0,), (1, 5)), R");
  EXPECT_EQ(backward_of(backward_of(there)), there);
}

TEST(Redistribution, BackwardOfAMax_LeavesSharesToASecondOne) {
  const Redistribution back = backward_of(move("P(max), S(0)", "R, S(0)"));
  EXPECT_EQ(back, (Redistribution{lay("R, S(0)"), lay("R, S(0)"), lay("P, S(0)"), {6, 4}}));
}

TEST(UseOfGradient, IsSummedOverTheDimsThatAreCut) {
  const std::vector<int64_t> dims = linear_partial_dims(lay("P(avg), S(1)"));
  EXPECT_EQ(dims, std::vector<int64_t>{0});
  EXPECT_EQ(linear_partial_dims(lay("P(max), P")), std::vector<int64_t>{1});
  const Redistribution use = use_of_gradient(lay("P(avg), S(1)"), dims, {6, 4});
  EXPECT_EQ(use, (Redistribution{lay("R, S(1)"), lay("R, S(1)"), lay("P, S(1)"), {6, 4}}));
}

TEST(Redistribution, Divisor_CountsTheRanksThatAreAveragedOver) {
  EXPECT_EQ(gradient_divisor(move("P(avg), P(avg)", "R, R")), 6);
  EXPECT_EQ(gradient_divisor(move("P(avg), P", "R, R")), 2);
  EXPECT_EQ(gradient_divisor(move("P(avg), P(avg)", "P(avg), R")), 3);
  EXPECT_EQ(gradient_divisor(move("P, S(0)", "R, R")), 1);
  const DeviceMesh other({3, 2}, {"dp", "tp"});
  EXPECT_EQ(gradient_divisor({lay("P(avg), R"), Layout(other, {Replicate{}, Replicate{}}), lay("R, R"), {6}}), 2);
}

TEST(Redistribution, ReductionsOfOneGradient_AreOnePart) {
  for (const std::string source : {"P, P(avg)", "P(max), P(max)", "P(avg), S(0)", "S(0), R"}) {
    const Redistribution whole = move(source, "R, R");
    EXPECT_EQ(parts_of(whole), Moves{whole}) << source;
  }
  const Redistribution stays = move("P, P(max)", "P, R");
  EXPECT_EQ(parts_of(stays), Moves{stays});
}

TEST(Redistribution, UnlikeReductions_GoOneAfterTheOther) {
  EXPECT_EQ(parts_of(move("P(max), P", "S(0), R")),
            (Moves{move("P(max), P", "P(max), R"), move("P(max), R", "S(0), R")}));
  EXPECT_EQ(parts_of(move("P(max), P(min)", "R, R")),
            (Moves{move("P(max), P(min)", "P(max), R"), move("P(max), R", "R, R")}));
  const Layout target = lay("R, R");
  const Redistribution leaving{lay("P, P(max)"), target, leaving_layout(target), {6, 4}};
  EXPECT_EQ(parts_of(leaving),
            (Moves{move("P, P(max)", "P, R"), {lay("P, R"), target, leaving_layout(target), {6, 4}}}));
}

TEST(Redistribution, ThreeUnlikeReductions_AreThreeParts) {
  const DeviceMesh cube({2, 2, 2});
  const auto layout = [&](const std::string& placements) { return Layout(cube, parse_placements(placements)); };
  const Redistribution whole{layout("P(max), P(avg), P"), layout("R, R, R"), layout("R, R, R"), {4}};
  const Moves parts = parts_of(whole);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].target, layout("P(max), P(avg), R"));
  EXPECT_EQ(parts[1].target, layout("P(max), R, R"));
  EXPECT_EQ(parts[2].target, whole.target);
}

TEST(Redistribution, ExtremeGradient_SaysHowHoldersAreCounted) {
  EXPECT_EQ(extreme_gradient(move("P(max), S(0)", "S(0), R")),
            (ExtremeGradient{lay("R, S(0)"), lay("P, S(0)"), lay("R, S(0)")}));
  // The max that stays is a share like any other: its dim is counted as it is.
  EXPECT_EQ(extreme_gradient(move("P(max), P(max)", "P(max), R")),
            (ExtremeGradient{lay("P(max), R"), lay("P, P"), lay("P, R")}));
}

TEST(Redistribution, WithoutAMaxOrMinInnermost_HasNoExtreme) {
  EXPECT_EQ(extreme_gradient(move("P, S(0)", "R, R")), std::nullopt);
  EXPECT_EQ(extreme_gradient(move("S(0), R", "R, R")), std::nullopt);
  EXPECT_EQ(extreme_gradient(move("P(max), R", "P(max), S(0)")), std::nullopt);
  EXPECT_EQ(extreme_gradient(move("P(max), P", "P(max), R")), std::nullopt);
}

}  // namespace
}  // namespace hyper_parallel
