// DTensors made of a shape and a value, and what cannot be made, on ranks that are threads.

#include "hyper_parallel/torch/factories.h"

#include "hyper_parallel/torch/random_state.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

TEST(Factories, Constants_AreEachRanksPart) {
  run_ranks(4, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2, 2}));
    for (const char* text : {"R, R", "S(0), R", "S(1), S(1)", "S(0), S(-1)"}) {
      const std::vector<Placement> to = parse_placements(text);
      const auto expect = [&](const DTensor& given, const at::Tensor& whole) {
        SCOPED_TRACE(text);
        EXPECT_EQ(given.layout(), Layout(mesh.mesh(), to).folded(2));
        EXPECT_EQ(given.dtype(), whole.scalar_type());
        expect_equal(given.local(), part_of(whole, given.layout(), self.rank));
      };
      expect(zeros({5, 3}, mesh, to), at::zeros({5, 3}));
      expect(ones({5, 3}, mesh, to, at::kInt), at::ones({5, 3}, at::kInt));
      expect(full({5, 3}, 2.5, mesh, to), at::full({5, 3}, 2.5));
      expect(full({5, 3}, 7, mesh, to), at::full({5, 3}, 7, at::kLong));
      expect(full({5, 3}, true, mesh, to), at::full({5, 3}, true, at::kBool));
      const DTensor unwritten = empty({5, 3}, mesh, to, at::kDouble);
      EXPECT_EQ(unwritten.dtype(), at::kDouble);
      EXPECT_EQ(unwritten.local().sizes(), part_of(at::zeros({5, 3}), unwritten.layout(), self.rank).sizes());
    }
  });
}

TEST(Factories, RequiresGrad_GivesALeaf) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    for (const DTensor& x : {ones({3}, mesh, {Shard(0)}, at::TensorOptions().requires_grad(true)),
                             randn({3}, mesh, {Shard(0)}, at::TensorOptions().requires_grad(true))}) {
      EXPECT_TRUE(x.requires_grad());
      EXPECT_TRUE(x.local().is_leaf());
      EXPECT_EQ(x.local()._version(), 0);
    }
    EXPECT_FALSE(zeros({3}, mesh, {Shard(0)}).requires_grad());
  });
}

TEST(Factories, WhatNoTensorCanBe_RaisesOnEveryRank) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}, {"dp"}));
    const auto error = [&](Shape shape, const char* to, const at::TensorOptions& options = {}) {
      return error_of([&] { randn(std::move(shape), mesh, parse_placements(to), options); });
    };
    EXPECT_EQ(error({6}, "RaggedShard((0,), (1, 2))"),
              "Unimplemented: randn: placements [RaggedShard((0,), (1, 2))] are ragged and ragged factories are not "
              "supported; make it with Shard(0) and redistribute() it");
    EXPECT_EQ(error({6}, "P"),
              "InvalidArgument: randn: placements [Partial(sum)] hold Partial, but a new tensor is no share of a "
              "pending reduction");
    EXPECT_EQ(error({6}, "S(0)", at::kLong),
              "Type: randn: dtype Long has no random numbers; it must be Double, Float, Half or BFloat16");
    EXPECT_TRUE(error({6, -1}, "S(0)").starts_with("InvalidArgument: ")) << error({6, -1}, "S(0)");
    EXPECT_TRUE(error({int64_t{1} << 40, int64_t{1} << 40}, "S(0)").starts_with("InvalidArgument: "));
    EXPECT_TRUE(error({6}, "S(1)").starts_with("OutOfRange: "));
    EXPECT_TRUE(error({6}, "S(0), R").starts_with("InvalidArgument: "));
    EXPECT_EQ(error_of([&] { zeros({2}, mesh, {Shard(0)}, at::dtype(at::kInt).requires_grad(true)); }),
              "InvalidArgument: zeros: requires_grad with dtype Int, but only floating point and complex tensors have "
              "gradients");
    EXPECT_EQ(error_of([&] { empty({2}, mesh, {Shard(0)}, at::TensorOptions().layout(at::kSparse)); }),
              "Unimplemented: empty: layout Sparse is not supported; a DTensor's parts are dense");
    EXPECT_EQ(mesh.random().position(), RandomPosition{});
  });
}

TEST(Factories, LikeAPartialOrIntegerTensor_Raises) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const DTensor partial = DTensor::from_local(at::ones({2}), mesh, parse_placements("P"));
    EXPECT_TRUE(error_of([&] { rand_like(partial); }).starts_with("InvalidArgument: rand_like: placements"));
    EXPECT_TRUE(error_of([&] {
                  randn_like(ones({2}, mesh, {Shard(0)}, at::kLong));
                }).starts_with("Type: randn_like: dtype Long"));
  });
}

TEST(FactoriesChecked, RanksThatMakeUnlikeTensors_RaiseTogether) {
  const ScopedCheckSetting on(CheckSetting::kOn);
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const at::ScalarType type = self.rank == 0 ? at::kFloat : at::kDouble;
    EXPECT_TRUE(error_of([&] { zeros({2}, mesh, {Shard(0)}, type); }).starts_with("FailedPrecondition: "));
    EXPECT_TRUE(error_of([&] { rand({2}, mesh, {Shard(0)}, type); }).starts_with("FailedPrecondition: "));
  });
}

}  // namespace
}  // namespace hyper_parallel::test
