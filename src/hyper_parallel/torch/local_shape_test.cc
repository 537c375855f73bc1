#include "hyper_parallel/torch/local_shape.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/threaded/thread_backend.h"

namespace hyper_parallel {
namespace {

using Shape = std::vector<int64_t>;

/// What `check_local` says about `local` on `rank` of a mesh over ranks 0 and 1.
std::string check(const at::Tensor& local, const std::string& placements, const Shape& shape, int64_t rank) {
  const Layout layout(DeviceMesh({2}), parse_placements(placements));
  return error_of([&] { check_local(local, layout, shape, rank); });
}

TEST(LocalShape, SizesOfTheRanksBox_AreAccepted) {
  EXPECT_EQ(check(at::ones({3, 2}), "S(0)", {5, 2}, 0), "no error");
  EXPECT_EQ(check(at::ones({2, 2}), "S(0)", {5, 2}, 1), "no error");
  EXPECT_EQ(check(at::ones({0, 2}), "S(0)", {1, 2}, 1), "no error");
  EXPECT_EQ(check(at::ones({5, 2}), "P(max)", {5, 2}, 1), "no error");
  EXPECT_EQ(check(at::ones({2, 5}).t(), "R", {5, 2}, 0), "no error");
  EXPECT_EQ(check(at::ones({}), "R", {}, 0), "no error");
}

TEST(LocalShape, OtherSizes_AreRefused) {
  EXPECT_EQ(check(at::ones({2, 2}), "S(0)", {5, 2}, 0),
            "InvalidArgument: local has shape (2, 2) but rank 0 owns (3, 2) of shape (5, 2) under [Shard(0)]");
  EXPECT_EQ(check(at::ones({4}), "S(0)", {4, 2}, 0),
            "InvalidArgument: local has shape (4,) but rank 0 owns (2, 2) of shape (4, 2) under [Shard(0)]");
  EXPECT_EQ(check(at::ones({1}), "R", {}, 0),
            "InvalidArgument: local has shape (1,) but rank 0 owns () of shape () under [Replicate()]");
}

TEST(LocalShape, RaggedLocal_IsAFlatRunOfTheRanksLength) {
  const std::string ragged = "RaggedShard((0,), (3, 1))";
  EXPECT_EQ(check(at::ones({6}), ragged, {4, 2}, 0), "no error");
  EXPECT_EQ(check(at::ones({2}), ragged, {4, 2}, 1), "no error");
  EXPECT_EQ(check(at::ones({3, 2}), ragged, {4, 2}, 0),
            "InvalidArgument: local has shape (3, 2) but with RaggedShard it must be 1-D: the flat run of rank 0");
  EXPECT_EQ(check(at::ones({12}).slice(0, 0, 12, 2), ragged, {4, 2}, 0),
            "InvalidArgument: local has stride 2 but with RaggedShard it must be contiguous");
  EXPECT_EQ(check(at::ones({6}), ragged, {4, 2}, 1),
            "InvalidArgument: local has 6 elements but rank 1 owns 2 of them under RaggedShard");
}

TEST(LocalShape, RankOutsideTheMesh_OwnsNoElement) {
  EXPECT_EQ(check(at::ones({0}), "S(0)", {4}, 2), "no error");
  EXPECT_EQ(check(at::ones({0, 3}), "RaggedShard((0,), (1, 1))", {4}, 2), "no error");
  EXPECT_EQ(check(at::ones({2}), "S(0)", {4}, 2),
            "InvalidArgument: local has 2 elements but rank 2 is outside the mesh and owns none");
}

TEST(LocalShape, OneRank_InfersItsOwnSizes) {
  const MeshCommunicator mesh(test::create_thread_groups(1)[0], DeviceMesh({1}));
  for (const std::string placements : {"R", "S(0)", "S(-1)", "P"}) {
    EXPECT_EQ(infer_global_shape(at::ones({3, 0, 2}), Layout(mesh.mesh(), parse_placements(placements)), mesh),
              (Shape{3, 0, 2}));
  }
  EXPECT_EQ(error_of([&] { infer_global_shape(at::ones({3}), Layout(mesh.mesh(), {Shard(1)}), mesh); }),
            "OutOfRange: Shard(1) is out of range for a tensor of 1 dims");
}

}  // namespace
}  // namespace hyper_parallel
