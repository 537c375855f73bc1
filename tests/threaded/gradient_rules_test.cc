// Inside the DTensor world a program means what the unsharded program means: gradients lie as their tensors do, are
// bit-equal on replicas, and are right to any order.

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tests/threaded/both_paths.h"
#include "tests/threaded/gradient_check.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

const std::vector<std::string> kOnThree{"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 0, 4))",
                                        "RaggedShard((0, 1), (4, 4, 7))"};

/// `x` with another local tensor: how an elementwise operation makes its result.
DTensor with_local(const DTensor& x, const at::Tensor& local) {
  return DTensor::unchecked(local, x.mesh(), x.layout(), x.shape());
}

/// The sum of all elements of `x`, a pending reduction over the mesh dims that split it.
DTensor summed(const DTensor& x) {
  std::vector<Placement> placements;
  for (const Placement& placement : x.placements()) {
    if (is_replicate(placement)) {
      placements.emplace_back(Replicate{});
    } else {
      placements.emplace_back(Partial());
    }
  }
  return DTensor::unchecked(x.local().sum(), x.mesh(), Layout(x.mesh().mesh(), placements), {});
}

class GradientRules : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, GradientRules, ::testing::ValuesIn(unchecked_paths()), name_of);

TEST_P(GradientRules, SplitToReplicate_BackwardIsASliceOfTheOwnGradient) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const std::string& text : kOnThree) {
      const DTensor x = leaf(counted({5, 3}), mesh, text);
      const at::Tensor gradient = counted({5, 3}) * (self.rank + 1);
      x.redistribute({Replicate{}}).local().backward(gradient);
      expect_equal(x.local().grad(), part_of(gradient, x.layout(), self.rank));
      EXPECT_EQ(x.grad()->layout(), x.layout());
    }
  });
}

TEST_P(GradientRules, ReplicateToSplit_BackwardGathersEveryRanksGradient) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const std::string& text : kOnThree) {
      if (text == "R") continue;
      const DTensor x = leaf(counted({5, 3}), mesh, "R");
      const DTensor part = x.redistribute(parse_placements(text));
      part.local().backward(part_of(counted({5, 3}), part.layout(), self.rank) * (self.rank + 1));
      at::Tensor expected = counted({5, 3});
      for (int64_t rank = 0; rank < 3; ++rank) {
        const auto owned = reference::owned_elements(reference::scheme_of(part.layout(), {5, 3}), rank);
        for (const int64_t element : owned) expected.view(-1)[element] *= rank + 1;
      }
      expect_equal(x.local().grad(), expected);
    }
  });
}

TEST_P(GradientRules, SumInTheBackward_IsBitEqualOnReplicas) {
  std::vector<at::Tensor> gradients(4);
  run(4, [&](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2, 2}));
    // Numbers whose float sum depends on the order of its terms.
    const at::Tensor weight = (at::arange(15, at::kFloat).view({5, 3}) + 1).div(3).pow(5 - 2 * self.rank);
    const DTensor x = laid_out(at::ones({5, 3}), mesh, "R, R").requires_grad_();
    (x.to_local() * weight).sum().backward();
    gradients[static_cast<size_t>(self.rank)] = x.local().grad();
  });
  for (const at::Tensor& gradient : gradients) expect_equal(gradient, gradients[0]);
}

TEST_P(GradientRules, PartialExtremesWithTies_ShareTheGradientEqually) {
  const at::Tensor max_shares = at::tensor({1., 5., 2., 7., 1., 3., 2., 9., 1., 5., 0., 9.}, at::kDouble).view({3, 4});
  const at::Tensor gradient = at::tensor({6., 12., 18., 24.}, at::kDouble);
  const at::Tensor of_max = at::tensor({2., 6., 9., 0., 2., 0., 9., 12., 2., 6., 0., 12.}, at::kDouble).view({3, 4});
  run(3, [&](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const std::string target : {"R", "S(0)", "RaggedShard((0,), (1, 0, 3))"}) {
      for (const auto& [op, sign] : {std::pair("P(max)", 1.), std::pair("P(min)", -1.)}) {
        const at::Tensor share = (max_shares[self.rank] * sign).requires_grad_();
        const DTensor to =
            DTensor::from_local(share, mesh, parse_placements(op)).redistribute(parse_placements(target));
        to.local().backward(part_of(gradient, to.layout(), self.rank));
        expect_equal(share.grad(), of_max[self.rank]);
      }
    }
  });
}

TEST_P(GradientRules, BackwardOfAScalar_IsThatOfOneProcess) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const std::vector<std::string> layouts{"R", "S(0)", "RaggedShard((0,), (0, 1))", "RaggedShard((0,), (1, 0))"};
    for (const std::string& source : layouts) {
      for (const std::string& target : layouts) {
        const DTensor x = leaf(counted({1}, 1, 5), mesh, source);
        const DTensor y = x.redistribute(parse_placements(target));
        with_local(y, y.local().square()).backward();
        expect_equal(x.local().grad(), part_of(counted({1}, 1, 10), x.layout(), self.rank));
      }
    }
    const double of_max = self.rank;  // the share of rank 1 is the greatest
    for (const auto& [op, expected] : {std::pair("P", 1.), std::pair("P(avg)", .5), std::pair("P(max)", of_max)}) {
      const at::Tensor share = at::tensor(2. + self.rank, at::kDouble).requires_grad_();
      DTensor::from_local(share, mesh, parse_placements(op)).backward();
      EXPECT_EQ(share.grad().item<double>(), expected) << op;
    }
  });
}

TEST_P(GradientRules, BackwardOfMoreThanOneElement_RaisesOnEveryRank) {
  const auto texts = errors(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    leaf(counted({2}), mesh, "S(0)").backward();
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text, "InvalidArgument: backward takes a tensor of one element but this one has shape (2,)");
  }
}

TEST_P(GradientRules, Case17_ReplicateThatMeetsASplit_GetsTheSumOverTheMesh) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    for (const bool leaves : {false, true}) {
      const DTensor w = leaf(at::tensor({1., 2.}, at::kDouble), mesh, "R");
      const DTensor x = laid_out(at::tensor({3., 4.}, at::kDouble), mesh, "S(0)");
      const DTensor y = summed(with_local(x, w.redistribute({Shard(0)}).local() * x.local()));
      const DTensor z = leaves ? DTensor::from_local(y.to_local(), mesh, {Partial()}, Shape{}) : y;
      EXPECT_EQ(z.item().toDouble(), 11);
      z.redistribute({Replicate{}}).backward();
      expect_equal(w.local().grad(), at::tensor({3., 4.}, at::kDouble));
    }
    for (const auto& [placements, factor] : {std::pair(std::string(), 2.), std::pair(std::string("R"), 1.)}) {
      const DTensor w = leaf(at::tensor({1., 2.}, at::kDouble), mesh, "R");
      const DTensor x = laid_out(at::tensor({3., 4.}, at::kDouble), mesh, "S(0)");
      const DTensor y = summed(with_local(x, w.redistribute({Shard(0)}).local() * x.local()));
      const DTensor z = y.redistribute({Replicate{}});
      (placements.empty() ? z.to_local() : z.to_local(parse_placements(placements))).backward();
      expect_equal(w.local().grad(), at::tensor({3., 4.}, at::kDouble) * factor);
    }
  });
}

TEST_P(GradientRules, RequiresGrad_FollowsOnEmptyShares) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const std::string& source : kOnThree) {
      for (const std::string& target : kOnThree) {
        const DTensor x = leaf(counted({5, 3}), mesh, source);
        const DTensor y = x.redistribute(parse_placements(target));
        EXPECT_TRUE(y.requires_grad());
        EXPECT_EQ(y.local().is_leaf(), source == target);
        EXPECT_FALSE(x.detach().redistribute(parse_placements(target)).requires_grad());
        EXPECT_FALSE(x.grad().has_value());
      }
    }
  });
}

TEST_P(GradientRules, ExpandedAndStridedGradients_AreRight) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const std::string& source : kOnThree) {
      for (const std::string& target : kOnThree) {
        const DTensor x = leaf(counted({5, 3}), mesh, source);
        const DTensor y = x.redistribute(parse_placements(target));
        y.local().sum().backward();
        expect_equal(x.local().grad(), at::ones_like(x.local()));
        // The gradient of a flipped stride: the values' gradient is a transposed view.
        x.local().mutable_grad() = at::Tensor();
        const at::Tensor weight = part_of(counted({5, 3}), y.layout(), self.rank);
        const DTensor again = x.redistribute(parse_placements(target));
        (again.local().t() * weight.t().contiguous()).sum().backward();
        expect_equal(x.local().grad(), part_of(counted({5, 3}), x.layout(), self.rank));
      }
    }
  });
}

/// Passes its input on, and no gradient back.
struct Blocked : torch::autograd::Function<Blocked> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) { return input.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    return {at::Tensor()};
  }
};

TEST_P(GradientRules, UndefinedGradientOnOneRank_CountsAsZerosAndEntersTheCollective) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const std::string& text : kOnThree) {
      const DTensor x = leaf(counted({5, 3}), mesh, text);
      const at::Tensor whole = x.full_tensor();
      (self.rank == 1 ? Blocked::apply(whole) : whole * (self.rank + 1)).sum().backward();
      expect_equal(x.local().grad(), at::full_like(x.local(), 4));
    }
  });
}

TEST_P(GradientRules, SecondDerivative_IsThatOfOneProcess) {
  const at::Tensor value = counted({5, 3}, 1, 1);
  const at::Tensor weight = counted({5, 3}, 2, -9);
  const at::Tensor direction = counted({5, 3}, -1, 4);
  run(3, [&](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const std::string& source : kOnThree) {
      for (const std::string& target : kOnThree) {
        SCOPED_TRACE(str_cat(source, " -> ", target));
        const DTensor x = leaf(value, mesh, source);
        const DTensor y = x.redistribute(parse_placements(target));
        const auto part = [&](const at::Tensor& whole, const DTensor& as) {
          return part_of(whole, as.layout(), self.rank);
        };
        // The loss sum(w * x^3), of which every rank holds its share.
        const at::Tensor loss = (y.local().pow(3) * part(weight, y)).sum();
        const at::Tensor first = torch::autograd::grad({loss}, {x.local()}, {}, true, true)[0];
        expect_equal(first.detach(), part(value.square() * weight * 3, x));
        const at::Tensor second = torch::autograd::grad({(first * part(direction, x)).sum()}, {x.local()})[0];
        expect_equal(second, part(value * weight * direction * 6, x));
      }
    }
  });
}

TEST_P(GradientRules, FullTensor_IsTheExactAdjointOfTheSumOfAllLossesToSecondOrder) {
  for (const std::string text : {"RaggedShard((0,), (2, 0, 1))", "S(0)"}) {
    run(3, [&](const ThreadRank& self) {
      const MeshCommunicator mesh(self.group, DeviceMesh({3}));
      const Layout layout = layout_on(mesh.mesh(), text);
      const Differentiable gather = [&](const at::Tensor& local) {
        return DTensor::from_local(local, mesh, layout.placements(), Shape{3, 2}).full_tensor();
      };
      const at::Tensor local = part_of(counted({3, 2}, 0.3, -0.5), layout, self.rank);
      expect_gradient(self, gather, local);
      expect_second_gradient(self, gather, local);
    });
  }
}

}  // namespace
}  // namespace hyper_parallel::test
