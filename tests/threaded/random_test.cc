// Random DTensors, dropout and the state behind them, on ranks that are threads.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <set>

#include "hyper_parallel/torch/counting_backend.h"
#include "hyper_parallel/torch/dropout.h"
#include "hyper_parallel/torch/factories.h"
#include "hyper_parallel/torch/random_state.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

constexpr uint64_t kSeed = 20240229;

struct Place {
  Shape mesh;
  std::string placements;
};

/// Every kind of normal layout on 1, 2, 4 and 6 ranks.
const std::vector<Place> kPlaces = {
    {{1}, "S(0)"},          {{2}, "R"},          {{2}, "S(0)"},       {{2}, "S(1)"},          {{2}, "S(-1)"},
    {{4}, "S(0)"},          {{4}, "S(2)"},       {{2, 2}, "R, R"},    {{2, 2}, "S(0), R"},    {{2, 2}, "S(0), S(0)"},
    {{2, 2}, "S(1), S(0)"}, {{2, 2}, "R, S(2)"}, {{3, 2}, "S(2), R"}, {{3, 2}, "S(1), S(1)"},
};
const Shape kShape{5, 3, 7};

using Make = std::function<DTensor(const MeshCommunicator&, const std::vector<Placement>&, at::ScalarType)>;

struct Maker {
  std::string name;
  Make make;
};

const std::vector<Maker> kMakers = {
    {"rand", [](const auto& mesh, const auto& to, at::ScalarType type) { return rand(kShape, mesh, to, type); }},
    {"randn", [](const auto& mesh, const auto& to, at::ScalarType type) { return randn(kShape, mesh, to, type); }},
    {"rand_like",
     [](const auto& mesh, const auto& to, at::ScalarType type) { return rand_like(zeros(kShape, mesh, to, type)); }},
    {"randn_like",
     [](const auto& mesh, const auto& to, at::ScalarType type) {
       return randn_like(zeros(kShape, mesh, to, at::kLong), at::TensorOptions().dtype(type));
     }},
    {"dropout",
     [](const auto& mesh, const auto& to, at::ScalarType type) { return dropout(ones(kShape, mesh, to, type), 0.4); }},
};

/// What one rank alone holds of a tensor made after `manual_seed(kSeed, mesh)`: all of it.
at::Tensor on_one_rank(const Maker& maker, at::ScalarType type) {
  at::Tensor whole;
  run_ranks(1, [&](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({1}));
    mesh.random().manual_seed(kSeed, mesh.mesh());
    whole = maker.make(mesh, {Replicate{}}, type).local();
  });
  return whole;
}

TEST(Random, EveryLayoutOnEveryMesh_IsTheSameTensor) {
  for (const Maker& maker : kMakers) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const at::Tensor whole = on_one_rank(maker, type);
      for (const Place& place : kPlaces) {
        const DeviceMesh over(place.mesh);
        run_ranks(static_cast<int>(over.size()), [&](const ThreadRank& self) {
          SCOPED_TRACE(str_cat(maker.name, " ", c10::toString(type), ": ", place.placements, ", rank ", self.rank));
          const MeshCommunicator mesh(self.group, over);
          mesh.random().manual_seed(kSeed, over);
          const DTensor made = maker.make(mesh, parse_placements(place.placements), type);
          EXPECT_EQ(made.shape(), kShape);
          EXPECT_EQ(made.dtype(), type);
          expect_equal(made.local(), part_of(whole, made.layout(), self.rank));
          expect_equal(made.full_tensor(), whole);
        });
      }
    }
  }
}

TEST(Random, LowPrecision_IsTheFloatNumberRounded) {
  const at::Tensor uniform = on_one_rank(kMakers[0], at::kFloat);
  EXPECT_TRUE(at::equal(on_one_rank(kMakers[0], at::kBFloat16).to(at::kFloat), uniform.mul(256).floor().div(256)));
  EXPECT_TRUE(at::equal(on_one_rank(kMakers[0], at::kHalf).to(at::kFloat), uniform.mul(2048).floor().div(2048)));
  expect_equal(on_one_rank(kMakers[1], at::kHalf), on_one_rank(kMakers[1], at::kFloat).to(at::kHalf));
}

TEST(Random, LargeTensors_AreFilledByAllThreadsAlike) {
  // More elements than three threads take, and columns of an odd number.
  const int before = at::get_num_threads();
  run_ranks(2, [](const ThreadRank& self) {
    at::set_num_threads(3);
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    std::vector<at::Tensor> wholes;
    for (const char* placements : {"R", "S(0)", "S(1)"}) {
      mesh.random().manual_seed(kSeed);
      wholes.push_back(randn({1801, 777}, mesh, parse_placements(placements)).full_tensor());
    }
    expect_equal(wholes[1], wholes[0]);
    expect_equal(wholes[2], wholes[0]);
    EXPECT_NEAR(wholes[0].mean().item<double>(), 0, 0.02);
    EXPECT_NEAR(wholes[0].std().item<double>(), 1, 0.02);
  });
  at::set_num_threads(before);
}

TEST(Random, CallsDrawUnlikeNumbersAndTheSeedRepeatsThem) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    mesh.random().manual_seed(kSeed);
    const at::Tensor first = rand({20}, mesh, {Shard(0)}).full_tensor();
    const at::Tensor second = rand({20}, mesh, {Shard(0)}).full_tensor();
    EXPECT_FALSE(at::equal(first, second));
    mesh.random().manual_seed(kSeed);
    expect_equal(rand({20}, mesh, {Replicate{}}).full_tensor(), first);
    expect_equal(rand({20}, mesh, {Shard(0)}).full_tensor(), second);
    mesh.random().manual_seed(kSeed + 1);
    EXPECT_FALSE(at::equal(rand({20}, mesh, {Shard(0)}).full_tensor(), first));
  });
}

TEST(Random, WithASeed_CommunicatesNothing) {
  run_ranks(2, [](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    const MeshCommunicator mesh(group, DeviceMesh({2}));
    mesh.random().manual_seed(kSeed);
    DTensor x = randn({5, 3}, mesh, {Shard(0)});
    dropout_(x, 0.5);
    dropout(zeros({5, 3}, mesh, {Shard(1)}), 0.5);
    full({3}, 1.5, mesh, {Replicate{}});
    EXPECT_EQ(counters->total().calls, 0);
  });
}

TEST(Random, WithoutASeed_TheRanksAgreeOnceForEachMesh) {
  for (const int ranks : {1, 2, 3, 4, 5, 7}) {
    run_ranks(ranks, [](const ThreadRank& self) {
      const auto [group, counters] = wrap_counting(self.group);
      const MeshCommunicator mesh(group, DeviceMesh({self.size}));
      EXPECT_EQ(mesh.random().peek(mesh.mesh()), std::nullopt);
      const DTensor first = rand({4, 4}, mesh, {Replicate{}});
      const int64_t calls = counters->total().calls;
      EXPECT_EQ(calls == 0, self.size == 1);
      const auto stream = mesh.random().peek(mesh.mesh());
      const uint64_t seed = at::detail::getDefaultCPUGenerator().current_seed();
      EXPECT_EQ(stream, (RandomStream{mixed_key(seed, mesh.mesh().ranks()), 1}));
      rand({4, 4}, mesh, {Replicate{}});
      EXPECT_EQ(counters->total().calls, calls);
    });
  }
}

TEST(Random, MeshesThatShareRanks_StayInStepAndDrawUnlikeNumbers) {
  std::vector<at::Tensor> of_pairs(4);
  run_ranks(4, [&](const ThreadRank& self) {
    const MeshCommunicator all(self.group, DeviceMesh({2, 2}, {"dp", "tp"}));
    all.random().manual_seed(kSeed);
    const MeshCommunicator pair = all.sub_mesh({"tp"});
    // Ranks 0 and 1 draw on their pair more often than ranks 2 and 3 do.
    const at::Tensor own = rand({3, 4}, pair, {Shard(1)}).full_tensor();
    if (self.rank < 2) rand({3, 4}, pair, {Replicate{}});
    const DTensor shared = rand({3, 4}, all, {Shard(0), Replicate{}});
    const at::Tensor whole = shared.full_tensor();
    expect_equal(shared.local(), part_of(whole, shared.layout(), self.rank));
    EXPECT_FALSE(at::equal(whole, own));
    of_pairs[static_cast<size_t>(self.rank)] = own;
    // Another shape over the same ranks goes on where this one stopped.
    const MeshCommunicator flat = all.with_mesh(all.mesh().flatten());
    const at::Tensor next = rand({3, 4}, flat, {Shard(1)}).full_tensor();
    all.random().manual_seed(kSeed);
    expect_equal(rand({3, 4}, flat, {Replicate{}}).full_tensor(), whole);
    expect_equal(rand({3, 4}, all, {Replicate{}, Shard(0)}).full_tensor(), next);
  });
  expect_equal(of_pairs[0], of_pairs[1]);
  expect_equal(of_pairs[2], of_pairs[3]);
  EXPECT_FALSE(at::equal(of_pairs[0], of_pairs[2]));
}

TEST(Random, ARankOutsideTheMesh_HoldsNothingAndWaitsForNobody) {
  run_ranks(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}, {"dp"}, {2, 0}));
    const DTensor x = randn({4, 3}, mesh, {Shard(0)}, at::TensorOptions().requires_grad(true));
    EXPECT_TRUE(x.requires_grad());
    EXPECT_EQ(x.shape(), (Shape{4, 3}));
    EXPECT_EQ(x.local().numel(), self.rank == 1 ? 0 : 6);
    const DTensor y = dropout(x, 0.5);
    EXPECT_TRUE(y.requires_grad());
    EXPECT_EQ(y.local().numel(), x.local().numel());
    EXPECT_EQ(ones({4, 3}, mesh, {Replicate{}}).local().numel(), self.rank == 1 ? 0 : 12);
    if (self.rank == 1) {
      EXPECT_EQ(mesh.random().position(), RandomPosition{});
    }
  });
}

TEST(Random, ShapesWithoutElementsAndScalars_AreMade) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    mesh.random().manual_seed(kSeed);
    EXPECT_EQ(randn({0, 4}, mesh, {Shard(0)}).local().sizes(), (Shape{0, 4}));
    EXPECT_EQ(rand({3, 0}, mesh, {Shard(0)}).local().sizes(), (Shape{self.rank == 0 ? 2 : 1, 0}));
    EXPECT_EQ(randn({1}, mesh, {Shard(0)}).local().numel(), self.rank == 0 ? 1 : 0);
    EXPECT_EQ(rand({}, mesh, {Replicate{}}).local().dim(), 0);
  });
}

TEST(RandomChecked, RanksWithUnlikeSeedsOrNumbers_RaiseTogether) {
  const ScopedCheckSetting on(CheckSetting::kOn);
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    mesh.random().manual_seed(static_cast<uint64_t>(self.rank));
    const std::string seeds = error_of([&] { rand({3}, mesh, {Shard(0)}); });
    EXPECT_TRUE(seeds.starts_with("FailedPrecondition: ")) << seeds;
    EXPECT_NE(seeds.find("seed 0; (0, 1) next 0"), std::string::npos) << seeds;
    EXPECT_NE(seeds.find("seed 1; (0, 1) next 0"), std::string::npos) << seeds;

    mesh.random().manual_seed(kSeed);
    rand({3}, mesh, {Shard(0)});
    if (self.rank == 0) mesh.random().take(mesh.mesh());
    const std::string numbers = error_of([&] { dropout(zeros({3}, mesh, {Shard(0)}), 0.5); });
    EXPECT_NE(numbers.find("next 1"), std::string::npos) << numbers;
    EXPECT_NE(numbers.find("next 2"), std::string::npos) << numbers;
  });
}

TEST(RandomChecked, OnlySomeRanksSeeded_RaiseTogether) {
  const ScopedCheckSetting on(CheckSetting::kOn);
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    if (self.rank == 1) mesh.random().manual_seed(5);
    const std::string error = error_of([&] { randn({3}, mesh, {Shard(0)}); });
    EXPECT_NE(error.find("no seed; (0, 1) next 0"), std::string::npos) << error;
    EXPECT_NE(error.find("seed 5; (0, 1) next 0"), std::string::npos) << error;
  });
}

// --- constants and refusals ------------------------------------------------------------------------------------------

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

// --- dropout ---------------------------------------------------------------------------------------------------------

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

// --- the state -------------------------------------------------------------------------------------------------------

/// y = x, whose backward computes its forward pass again, as activation checkpointing does.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::function<void()>& again) {
    context->saved_data["again"] = reinterpret_cast<int64_t>(&again);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::AutoGradMode with_gradients(true);
    (*reinterpret_cast<const std::function<void()>*>(context->saved_data["again"].toInt()))();
    return {gradients[0], at::Tensor()};
  }
};

TEST(RandomState, ADrawThatIsComputedAgain_RaisesWithoutAReplay) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    mesh.random().manual_seed(kSeed);
    const DTensor input = ones({6}, mesh, {Shard(0)});
    const RandomPosition before = mesh.random().position();
    const at::Tensor mask = dropout(input, 0.5).local();
    std::string error;
    std::string of_rand;
    at::Tensor replayed;
    const std::function<void()> again = [&] {
      error = error_of([&] { dropout(input, 0.5); });
      of_rand = error_of([&] { rand({3}, mesh, {Shard(0)}); });
      RandomPosition stood = mesh.random().begin_replay(before);
      replayed = dropout(input, 0.5).local();
      mesh.random().end_replay(std::move(stood));
    };
    Recomputed::apply(at::ones({1}).requires_grad_(), again).sum().backward();
    EXPECT_EQ(
        error,
        "Unimplemented: dropout: a forward pass that is computed again in a backward pass would draw other numbers "
        "than before; give torch.utils.checkpoint use_reentrant=False and "
        "context_fn=hyper_parallel.replay_random");
    EXPECT_TRUE(of_rand.starts_with("Unimplemented: rand: a forward pass that is computed again")) << of_rand;
    expect_equal(replayed, mask);
    EXPECT_EQ(mesh.random().peek(mesh.mesh())->number, 1U);
  });
}

TEST(RandomState, AReplay_KeepsTheSeedAgreedOnSince) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const RandomPosition before = mesh.random().position();
    const at::Tensor drawn = rand({6}, mesh, {Replicate{}}).local();
    RandomPosition stood = mesh.random().begin_replay(before);
    EXPECT_TRUE(mesh.random().is_replaying());
    EXPECT_NE(mesh.random().peek(mesh.mesh()), std::nullopt);
    expect_equal(rand({6}, mesh, {Replicate{}}).local(), drawn);
    mesh.random().end_replay(std::move(stood));
    EXPECT_FALSE(mesh.random().is_replaying());
    EXPECT_EQ(mesh.random().peek(mesh.mesh())->number, 1U);
    EXPECT_EQ(error_of([&] { mesh.random().end_replay({}); }),
              "FailedPrecondition: end_replay: there is no replay to end");
  });
}

TEST(RandomState, Text_ReadsBack) {
  const DeviceMesh pair({2});
  RandomState state;
  EXPECT_EQ(to_string(state.position()), "no seed");
  state.set_agreed_seed(DeviceMesh({1}, {}, {5}), 9);
  state.manual_seed(7, DeviceMesh({2}, {}, {3, 2}));
  EXPECT_EQ(to_string(state.position()), "no seed; (3, 2) own 7 next 0; (5,) agreed 9 next 0");
  EXPECT_EQ(parse_random_position(to_string(state.position())), state.position());
  state.manual_seed(~uint64_t{0});
  state.take(pair);
  EXPECT_EQ(to_string(state.position()), "seed -1; (0, 1) next 1");
  RandomState other;
  other.set_position(parse_random_position(to_string(state.position())));
  EXPECT_EQ(other.take(pair), state.take(pair));
}

TEST(RandomState, OtherTexts_Raise) {
  for (const char* text : {"", "seed", "seed 1; (0, 1)", "seed 1; (0, 1) next", "seed 1;", "no seed (0,) next 1",
                           "seed 1; (0,) next 1; (0,) next 2", "seed 99999999999999999999", "seed 1 and more"}) {
    EXPECT_TRUE(error_of([&] { parse_random_position(text); }).starts_with("InvalidArgument: ")) << text;
  }
}

TEST(RandomState, Restart_KeepsGivenSeedsAlone) {
  const DeviceMesh pair({2});
  const DeviceMesh single({1}, {}, {3});
  RandomState state;
  state.set_agreed_seed(pair, 4);
  state.manual_seed(8, single);
  state.take(pair);
  state.take(single);
  state.restart();
  EXPECT_EQ(state.peek(pair), std::nullopt);
  EXPECT_EQ(state.peek(single), (RandomStream{8, 0}));
  state.manual_seed(1);
  EXPECT_EQ(state.peek(single), (RandomStream{mixed_key(1, single.ranks()), 0}));
  state.take(single);
  state.restart();
  EXPECT_EQ(state.peek(single), (RandomStream{mixed_key(1, single.ranks()), 0}));
}

}  // namespace
}  // namespace hyper_parallel::test
