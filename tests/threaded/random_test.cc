// Random DTensors, on ranks that are threads.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include "hyper_parallel/torch/counting_backend.h"
#include "hyper_parallel/torch/dropout.h"
#include "hyper_parallel/torch/factories.h"
#include "hyper_parallel/torch/random_state.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/random_support.h"

namespace hyper_parallel::test {
namespace {

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

}  // namespace
}  // namespace hyper_parallel::test
