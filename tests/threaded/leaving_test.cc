// Leaving the DTensor world by `to_local` and `full_tensor`: what comes back as gradient, by default and as told.

#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

class Leaving : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, Leaving, ::testing::ValuesIn(unchecked_paths()), name_of);

TEST_P(Leaving, FullTensorSum_GivesTheMeshSizeInEverySlot) {
  run(4, [](const ThreadRank& self) {
    const MeshCommunicator flat(self.group, DeviceMesh({4}));
    const MeshCommunicator square(self.group, DeviceMesh({2, 2}));
    const auto expect_size = [](const DTensor& x) {
      x.full_tensor().sum().backward();
      expect_equal(x.local().grad(), at::full_like(x.local(), 4));
    };
    for (const std::string text : {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 0, 3, 1))", "P"}) {
      expect_size(leaf(counted({5, 3}), flat, text));
    }
    for (const std::string text :
         {"R, R", "S(0), R", "S(0), S(0)", "S(1), S(0)", "R, RaggedShard((0,), (0, 1))", "P, S(1)"}) {
      expect_size(leaf(counted({5, 3}), square, text));
    }
  });
}

TEST_P(Leaving, FullTensorOfAnAverage_DividesByItsGroup) {
  run(4, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2, 2}));
    const DTensor x = leaf(counted({5, 3}), mesh, "P(avg), S(0)");
    x.full_tensor().sum().backward();
    expect_equal(x.local().grad(), at::full_like(x.local(), 2));
  });
}

TEST_P(Leaving, UnlikeLossesOfAReplicate_AreSummedUnlessTold) {
  const at::Tensor weight = counted({5, 3}, 2, 1);
  run(3, [&](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    const auto gradient_of = [&](const auto& leave) {
      const DTensor x = leaf(counted({5, 3}), mesh, "R");
      (leave(x) * weight * (self.rank + 1)).sum().backward();
      return x.local().grad();
    };
    using Told = std::vector<Placement>;
    expect_equal(gradient_of([](const DTensor& x) { return x.to_local(); }), weight * 6);
    expect_equal(gradient_of([](const DTensor& x) { return x.to_local(Told{Partial()}); }), weight * 6);
    expect_equal(gradient_of([](const DTensor& x) { return x.to_local(Told{Partial(ReduceOp::kAvg)}); }), weight * 2);
    expect_equal(gradient_of([](const DTensor& x) { return x.to_local(Told{Replicate{}}); }), weight * (self.rank + 1));
    expect_equal(gradient_of([](const DTensor& x) { return x.full_tensor(); }), weight * 6);
    expect_equal(gradient_of([](const DTensor& x) { return x.full_tensor(Told{Replicate{}}); }),
                 weight * (self.rank + 1));
  });
}

TEST_P(Leaving, ToLocalOfASplit_KeepsTheOwnGradient) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const std::string text : {"S(0)", "S(1)", "RaggedShard((0,), (1, 0, 4))", "P", "P(avg)", "P(max)"}) {
      const DTensor x = leaf(counted({5, 3}), mesh, text);
      const DTensor told = leaf(counted({5, 3}), mesh, text);
      (x.to_local() * (self.rank + 1)).sum().backward();
      expect_equal(x.local().grad(), at::full_like(x.local(), self.rank + 1));
      if (is_partial(told.placements()[0])) continue;
      (told.to_local(told.placements()) * (self.rank + 1)).sum().backward();
      expect_equal(told.local().grad(), at::full_like(x.local(), self.rank + 1));
    }
    const DTensor share = leaf(counted({5, 3}), mesh, "P");
    (share.to_local(share.placements()) * (self.rank + 1)).sum().backward();
    expect_equal(share.local().grad(), at::full_like(share.local(), 6));
  });
}

TEST_P(Leaving, ToLocalOfRaggedReplicas_SumsOverTheReplicateDimAlone) {
  run(4, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2, 2}, {"dp", "tp"}));
    const DTensor inner = leaf(counted({5, 3}), mesh, "R, RaggedShard((0,), (2, 3))");
    (inner.to_local() * (self.rank + 1)).sum().backward();
    expect_equal(inner.local().grad(), at::full_like(inner.local(), self.rank % 2 == 0 ? 1 + 3 : 2 + 4));
    const DTensor outer = leaf(counted({5, 3}), mesh, "RaggedShard((0, 1), (15, 0)), R");
    (outer.to_local() * (self.rank + 1)).sum().backward();
    expect_equal(outer.local().grad(), at::full_like(outer.local(), self.rank / 2 == 0 ? 1 + 2 : 3 + 4));
    const DTensor told = leaf(counted({5, 3}), mesh, "R, RaggedShard((0,), (2, 3))");
    (told.to_local(told.placements()) * (self.rank + 1)).sum().backward();
    expect_equal(told.local().grad(), at::full_like(told.local(), self.rank + 1));
  });
}

TEST_P(Leaving, WrongGradPlacements_RaiseOnEveryRank) {
  const auto texts_of = [&](const std::string& source, const std::string& grad, bool full) {
    return errors(2, [&](const ThreadRank& self) {
      const DTensor x = leaf(counted({4, 2}), MeshCommunicator(self.group, DeviceMesh({2}, {"dp"})), source);
      full ? x.full_tensor(parse_placements(grad)) : x.to_local(parse_placements(grad));
    });
  };
  const std::string rule =
      "; the gradient must lie as the tensor, or be Replicate(), Partial(sum) or Partial(avg) where that is whole";
  const auto expect_refused = [&](const std::string& source, const std::string& grad, bool full,
                                  const std::string& middle) {
    for (const std::string& text : texts_of(source, grad, full)) {
      EXPECT_EQ(text, str_cat("InvalidArgument: grad_placements have ", middle, rule));
    }
  };
  expect_refused("S(0)", "R", false, "Replicate() on mesh dim 'dp' where the tensor is Shard(0)");
  expect_refused("S(0)", "S(1)", false, "Shard(1) on mesh dim 'dp' where the tensor is Shard(0)");
  expect_refused("R", "S(0)", false, "Shard(0) on mesh dim 'dp' where the tensor is Replicate()");
  expect_refused("R", "P(max)", false, "Partial(max) on mesh dim 'dp' where the tensor is Replicate()");
  expect_refused("RaggedShard((0,), (1, 3))", "P", false,
                 "Partial(sum) on mesh dim 'dp' where the tensor is RaggedShard((0,), (1, 3))");
  expect_refused("S(0)", "S(0)", true, "Shard(0) on mesh dim 'dp' where the tensor is Replicate()");
  for (const std::string& text : texts_of("S(0)", "R, R", false)) {
    EXPECT_EQ(text, "InvalidArgument: grad_placements [Replicate(), Replicate()] are 2 but the mesh has 1 dims");
  }
}

TEST_P(Leaving, Case19_ExpandedAndTransposedGradients_AreRight) {
  const std::vector<at::Tensor> of_sum{floats({3, 3}), floats({}), floats({3, 3, 3, 3})};
  const std::vector<at::Tensor> of_transposed{floats({3, 3}), floats({}), floats({3, 30, 30, 30})};
  run(3, [&](const ThreadRank& self) {
    const auto rank = static_cast<size_t>(self.rank);
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    const at::Tensor whole = at::arange(6, at::kFloat);
    const DTensor a = leaf(whole, mesh, "RaggedShard((0,), (2, 0, 4))");
    a.full_tensor().sum().backward();
    expect_equal(a.local().grad(), of_sum[rank]);
    const DTensor b = leaf(whole, mesh, "RaggedShard((0,), (2, 0, 4))");
    b.full_tensor().view({2, 3}).t().matmul(floats({1, 10})).sum().backward();
    expect_equal(b.local().grad(), of_transposed[rank]);
  });
}

TEST_P(Leaving, Case20_UnlikeLosses_AreSummedUnlessToldToBeOne) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    for (const std::string text : {"S(0)", "RaggedShard((0,), (1, 1))"}) {
      const DTensor summed = leaf(at::arange(4, at::kFloat), mesh, text);
      (summed.full_tensor().sum() * (self.rank + 1)).backward();
      expect_equal(summed.local().grad(), floats({3, 3}));
      const DTensor one = leaf(at::arange(4, at::kFloat), mesh, text);
      (one.full_tensor(std::vector<Placement>{Replicate{}}).sum() * (self.rank + 1)).backward();
      expect_equal(one.local().grad(), self.rank == 0 ? floats({1, 1}) : floats({2, 2}));
    }
  });
}

TEST_P(Leaving, Case22_WeightsPerRank_EmptyShareTakesPartInTheBackward) {
  const std::vector<at::Tensor> expected{floats({6, 12}), floats({}), floats({18, 24, 30, 36})};
  run(3, [&](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    const at::Tensor weights = at::arange(1, 7, at::kFloat) * (self.rank + 1);
    const auto expect_gradients = [&](const DTensor& x) {
      EXPECT_TRUE(x.requires_grad());
      (x.full_tensor() * weights).sum().backward();
      expect_equal(x.local().grad(), expected[static_cast<size_t>(self.rank)]);
    };
    const std::vector<Placement> ragged = parse_placements("RaggedShard((0,), (2, 0, 4))");
    expect_gradients(leaf(at::arange(6, at::kFloat), mesh, "RaggedShard((0,), (2, 0, 4))"));
    expect_gradients(distribute(at::arange(6, at::kFloat).requires_grad_(), mesh, ragged));
    expect_gradients(distribute(at::arange(6, at::kFloat).requires_grad_(), mesh, ragged, 2));
  });
}

TEST_P(Leaving, Case23_LeafAndRequiresGrad_AreThoseOfTheTensorNotOfItsStorage) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    for (const std::string text : {"S(0)", "RaggedShard((0,), (1, 3))"}) {
      const at::Tensor x = at::arange(4, at::kFloat).requires_grad_();
      const DTensor d = distribute(x, mesh, parse_placements(text));
      EXPECT_TRUE(d.local().is_leaf() && d.requires_grad());
      const DTensor e = d.redistribute({Replicate{}});
      EXPECT_TRUE(!e.local().is_leaf() && e.requires_grad());
      const DTensor f = d.detach();
      EXPECT_FALSE(f.requires_grad());
      EXPECT_EQ(f.local().data_ptr(), d.local().data_ptr());
      e.full_tensor().sum().backward();
      EXPECT_EQ(d.grad()->placements(), d.placements());
      expect_equal(d.grad()->full_tensor(), at::full({4}, 2, at::kFloat));
      EXPECT_FALSE(x.grad().defined());
    }
  });
}

}  // namespace
}  // namespace hyper_parallel::test
