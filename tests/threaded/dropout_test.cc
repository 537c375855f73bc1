// Dropout, on ranks that are threads.

#include "hyper_parallel/torch/dropout.h"

#include <set>

#include "hyper_parallel/torch/factories.h"
#include "hyper_parallel/torch/random_state.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/random_support.h"

namespace hyper_parallel::test {
namespace {

TEST(Dropout, Gradient_PassesThroughTheSameMask) {
  for (const Place& place : kPlaces) {
    const DeviceMesh over(place.mesh);
    run_ranks(static_cast<int>(over.size()), [&](const ThreadRank& self) {
      SCOPED_TRACE(place.placements);
      const MeshCommunicator mesh(self.group, over);
      mesh.random().manual_seed(kSeed);
      const at::TensorOptions leaf = at::TensorOptions().requires_grad(true);
      const DTensor x = full(kShape, 3.0, mesh, parse_placements(place.placements), leaf);
      const DTensor y = dropout(x, 0.25);
      y.local().sum().backward();
      expect_equal(x.grad()->local() * 3, y.local().detach());
      const std::set<float> values = [&] {
        const at::Tensor whole = y.detach().full_tensor().flatten();
        return std::set<float>(whole.data_ptr<float>(), whole.data_ptr<float>() + whole.numel());
      }();
      EXPECT_EQ(values, (std::set<float>{0, 3 * (1 / 0.75F)}));
    });
  }
}

TEST(Dropout, InPlace_IsTheSameMask) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    mesh.random().manual_seed(kSeed);
    DTensor x = ones({5, 4}, mesh, {Shard(1)});
    const DTensor y = dropout(x, 0.5);
    mesh.random().manual_seed(kSeed);
    dropout_(x, 0.5);
    expect_equal(x.local(), y.local());
  });
}

TEST(Dropout, WhereNothingIsDrawn_TheStateStays) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    mesh.random().manual_seed(kSeed);
    DTensor x = ones({5, 4}, mesh, {Shard(0)});
    EXPECT_TRUE(dropout(x, 0.5, DropoutMode::kEvaluation).local().is_same(x.local()));
    EXPECT_TRUE(dropout(x, 0.0).local().is_same(x.local()));
    dropout_(x, 0.5, DropoutMode::kEvaluation);
    expect_equal(x.full_tensor(), at::ones({5, 4}));
    expect_equal(dropout(x, 1.0).full_tensor(), at::zeros({5, 4}));
    dropout(zeros({0, 4}, mesh, {Shard(0)}), 0.5);
    EXPECT_EQ(mesh.random().peek(mesh.mesh())->number, 0U);
    dropout_(x, 1.0);
    expect_equal(x.full_tensor(), at::zeros({5, 4}));
  });
}

TEST(Dropout, ANonContiguousPart_IsMaskedByPosition) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    mesh.random().manual_seed(kSeed);
    const at::Tensor expected = dropout(ones({4, 6}, mesh, {Shard(0)}), 0.5).local();
    const DTensor transposed = DTensor::from_local(at::ones({6, 2}).t(), mesh, {Shard(0)}, Shape{4, 6});
    mesh.random().manual_seed(kSeed);
    expect_equal(dropout(transposed, 0.5).local(), expected);
  });
}

TEST(Dropout, WhatCannotBeDropped_RaisesOnEveryRank) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const DTensor x = ones({4}, mesh, {Shard(0)});
    EXPECT_EQ(error_of([&] { dropout(x, 1.5); }), "InvalidArgument: dropout: p is 1.5 but must be in [0, 1]");
    EXPECT_EQ(error_of([&] { dropout(x, -0.5, DropoutMode::kEvaluation); }),
              "InvalidArgument: dropout: p is -0.5 but must be in [0, 1]");
    const DTensor ragged = distribute(at::ones({4}), mesh, parse_placements("RaggedShard((0,), (1, 3))"));
    EXPECT_EQ(error_of([&] { dropout(ragged, 0.5, DropoutMode::kEvaluation); }),
              "Unimplemented: operation 'dropout' draws random numbers, and equal seeds would give equal shares on all "
              "ranks; draw on a plain tensor and distribute that");
    DTensor partial = DTensor::from_local(at::ones({4}), mesh, parse_placements("P"));
    EXPECT_EQ(error_of([&] { dropout_(partial, 0.5); }),
              "InvalidArgument: operation 'dropout_' does not commute with the pending reduction of argument 'input', "
              "whose placements are [Partial(sum)]; redistribute it to Replicate() first");
    EXPECT_EQ(error_of([&] { dropout(ones({4}, mesh, {Shard(0)}, at::kInt), 0.5); }),
              "Type: dropout: dtype Int has no random numbers; it must be Double, Float, Half or BFloat16");
    EXPECT_EQ(mesh.random().position(), RandomPosition{});
  });
}

}  // namespace
}  // namespace hyper_parallel::test
