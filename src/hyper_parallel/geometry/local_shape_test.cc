#include "hyper_parallel/geometry/local_shape.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using Sizes = std::vector<int64_t>;

const DeviceMesh& line() {
  static const DeviceMesh mesh({2});
  return mesh;
}

/// What `check_local` says about a row-major local of these sizes on `rank` of a mesh over ranks 0 and 1.
std::string check(const Sizes& sizes, const std::string& placements, const Sizes& shape, int64_t rank) {
  Sizes strides(sizes.size(), 1);
  for (size_t dim = sizes.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * sizes[dim];
  const Layout layout(line(), parse_placements(placements));
  return error_of([&] { check_local({sizes, strides}, layout, shape, rank); });
}

TEST(CheckLocal, SizesOfTheRanksBox_AreAccepted) {
  EXPECT_EQ(check({3, 2}, "S(0)", {5, 2}, 0), "no error");
  EXPECT_EQ(check({2, 2}, "S(0)", {5, 2}, 1), "no error");
  EXPECT_EQ(check({0, 2}, "S(0)", {1, 2}, 1), "no error");
  EXPECT_EQ(check({5, 2}, "P(max)", {5, 2}, 1), "no error");
  EXPECT_EQ(check({}, "R", {}, 0), "no error");
}

TEST(CheckLocal, OtherSizes_AreRefused) {
  EXPECT_EQ(check({2, 2}, "S(0)", {5, 2}, 0),
            "InvalidArgument: local has shape (2, 2) but rank 0 owns (3, 2) of shape (5, 2) under [Shard(0)]");
  EXPECT_EQ(check({4}, "S(0)", {4, 2}, 0),
            "InvalidArgument: local has shape (4,) but rank 0 owns (2, 2) of shape (4, 2) under [Shard(0)]");
}

TEST(CheckLocal, RaggedLocal_IsAFlatRunOfTheRanksLength) {
  const std::string ragged = "RaggedShard((0,), (3, 1))";
  EXPECT_EQ(check({6}, ragged, {4, 2}, 0), "no error");
  EXPECT_EQ(check({2}, ragged, {4, 2}, 1), "no error");
  EXPECT_EQ(check({3, 2}, ragged, {4, 2}, 0),
            "InvalidArgument: local has shape (3, 2) but with RaggedShard it must be 1-D: the flat run of rank 0");
  EXPECT_EQ(check({6}, ragged, {4, 2}, 1),
            "InvalidArgument: local has 6 elements but rank 1 owns 2 of them under RaggedShard");
}

TEST(CheckLocal, RaggedLocalThatIsStrided_IsRefusedWhereItHasAStride) {
  const auto strided = [](const Sizes& sizes, const std::string& units) {
    const Layout layout(line(), parse_placements("RaggedShard((0,), " + units + ")"));
    return error_of([&] { check_local({sizes, Sizes{2}}, layout, Sizes{4, 1}, 0); });
  };
  EXPECT_EQ(strided({3}, "(3, 1)"), "InvalidArgument: local has stride 2 but with RaggedShard it must be contiguous");
  EXPECT_EQ(strided({1}, "(1, 3)"), "no error");
  EXPECT_EQ(strided({0}, "(0, 4)"), "no error");
}

TEST(CheckLocal, RankOutsideTheMesh_OwnsNoElement) {
  EXPECT_EQ(check({0}, "S(0)", {4}, 2), "no error");
  EXPECT_EQ(check({0, 3}, "RaggedShard((0,), (1, 1))", {4}, 2), "no error");
  EXPECT_EQ(check({2}, "S(0)", {4}, 2),
            "InvalidArgument: local has 2 elements but rank 2 is outside the mesh and owns none");
}

TEST(CheckLocal, StridesOfAnotherNumber_AreRefused) {
  const Layout layout(line(), {Replicate{}});
  EXPECT_EQ(error_of([&] { check_local({Sizes{2, 2}, Sizes{2}}, layout, Sizes{2, 2}, 0); }),
            "InvalidArgument: local has 2 sizes and 1 strides");
}

std::string known(const std::string& placements, const Sizes& sizes, int64_t rank) {
  const Layout layout(line(), parse_placements(placements));
  std::string shape = "unknown";
  const std::string said = error_of([&] {
    if (const auto value = known_global_shape(layout, sizes, rank)) shape = tuple_text(*value);
  });
  return said == "no error" ? shape : said;
}

TEST(KnownGlobalShape, WholeLocal_IsTheShape) {
  EXPECT_EQ(known("R", {3, 0}, 0), "(3, 0)");
  EXPECT_EQ(known("P", {}, 1), "()");
}

TEST(KnownGlobalShape, ShardedLocal_DoesNotTellIt) {
  EXPECT_EQ(known("S(0)", {3, 2}, 0), "unknown");
  EXPECT_EQ(known("S(0)", Sizes(64, 1), 0), "unknown");
}

TEST(KnownGlobalShape, WhereNobodyCanTellIt_Raises) {
  EXPECT_EQ(
      known("Ragged((0,), (1, 1))", {3}, 0),
      "InvalidArgument: from_local: shape is missing but with RaggedShard the logical shape cannot be told from the "
      "flat local tensor");
  EXPECT_EQ(known("R", {3}, 2),
            "InvalidArgument: from_local: shape is missing but rank 2 is outside the mesh and cannot tell it");
  EXPECT_EQ(known("S(0)", Sizes(65, 1), 0),
            "InvalidArgument: local has 65 dims but at most 64 can be told to other ranks");
}

TEST(InferGlobalShape, UnevenShares_AddUp) {
  EXPECT_EQ(infer_global_shape(Layout(line(), {Shard(0)}), {{3, 2}, {2, 2}}), (Sizes{5, 2}));
  EXPECT_EQ(infer_global_shape(Layout(line(), {Shard(-1)}), {{3, 1}, {3, 0}}), (Sizes{3, 1}));
  EXPECT_EQ(infer_global_shape(Layout(DeviceMesh({1}), {Shard(0)}), {{3, 0, 2}}), (Sizes{3, 0, 2}));
  const DeviceMesh grid({2, 2});
  EXPECT_EQ(infer_global_shape(Layout(grid, {Shard(0), Shard(0)}), {{2}, {1}, {1}, {1}}), (Sizes{5}));
  EXPECT_EQ(infer_global_shape(Layout(grid, {Replicate{}, Shard(1)}), {{4, 2}, {4, 1}, {4, 2}, {4, 1}}), (Sizes{4, 3}));
}

TEST(InferGlobalShape, SharesThatBreakTheShardRule_AreRefused) {
  EXPECT_EQ(
      error_of([] { infer_global_shape(Layout(line(), {Shard(0)}), {{2, 2}, {3, 2}}); }),
      "InvalidArgument: from_local: rank 0 has a local of shape (2, 2) but owns (3, 2) of shape (5, 2), to which the "
      "local sizes add up, under [Shard(0)]");
  EXPECT_EQ(error_of([] { infer_global_shape(Layout(line(), {Shard(0)}), {{2, 2}, {2}}); }),
            "InvalidArgument: from_local: the ranks' local tensors have 2 and 1 dims");
  EXPECT_EQ(error_of([] { infer_global_shape(Layout(line(), {Shard(1)}), {{2}, {2}}); }),
            "OutOfRange: Shard(1) is out of range for a tensor of 1 dims");
  EXPECT_EQ(error_of([] { infer_global_shape(Layout(line(), {Shard(0)}), {{2}}); }),
            "InvalidArgument: from_local: there are 1 local shapes but the mesh has 2 ranks");
  EXPECT_EQ(
      error_of([] { infer_global_shape(Layout(line(), parse_placements("Ragged((0,), (1, 1))")), {{2}, {2}}); }),
      "InvalidArgument: from_local: shape is missing but with RaggedShard the logical shape cannot be told from the "
      "flat local tensor");
}

}  // namespace
}  // namespace hyper_parallel
