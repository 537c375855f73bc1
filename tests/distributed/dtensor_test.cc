// DTensors between real processes over Gloo: a smaller set than the threaded tests, for what only processes show.

#include "hyper_parallel/torch/dtensor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/redistribute/traffic.h"
#include "hyper_parallel/torch/counting_backend.h"
#include "hyper_parallel/torch/elementwise.h"
#include "hyper_parallel/torch/group_check.h"
#include "tests/distributed/process_pool.h"
#include "tests/support/error_of.h"

namespace hyper_parallel::test {
namespace {

constexpr int kDiedExitCode = 42;

void expect_equal(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(actual, expected)) << "actual:\n" << actual << "\nexpected:\n" << expected;
}

at::Tensor counted_up(at::IntArrayRef shape) {
  return at::arange(c10::multiply_integers(shape), at::kFloat).view(shape);
}

MeshCommunicator mesh_of(const ProcessRank& self, DeviceMesh mesh) { return {self.group, std::move(mesh)}; }

const std::vector<std::string>& grid_layouts() {
  static const std::vector<std::string> kLayouts{"[R, R]",
                                                 "[S(0), S(0)]",
                                                 "[S(0), S(1)]",
                                                 "[S(1), S(0)]",
                                                 "[R, Ragged((0,), (2, 1))]",
                                                 "[Ragged((0, 1), (0, 5)), R]"};
  return kLayouts;
}

TEST(GlooDTensor, EveryPairOfLayouts_KeepsValuesAndGradients_AtTheLowerBound) {
  run_processes(4, [](const ProcessRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    const MeshCommunicator mesh(group, DeviceMesh({2, 2}, {"dp", "tp"}));
    const at::Tensor whole = counted_up({6, 5});
    const at::Tensor weights = whole.flip({0, 1}) * (self.rank + 1);
    for (const std::string& from : grid_layouts()) {
      for (const std::string& to : grid_layouts()) {
        SCOPED_TRACE(from + " -> " + to);
        const DTensor source = distribute(whole.clone().requires_grad_(), mesh, parse_placements(from));
        const Plan plan = plan_redistribution(source.layout(), Layout(mesh.mesh(), parse_placements(to)), Dims{6, 5});
        counters->reset();
        const DTensor target = source.redistribute(parse_placements(to));
        EXPECT_EQ(counters->total().bytes_received, 4 * *received_lower_bound(plan, self.rank));
        const at::Tensor full = target.full_tensor();
        expect_equal(full.detach(), whole);
        (full * weights).sum().backward();
        expect_equal(source.grad()->full_tensor(), whole.flip({0, 1}) * 10);
      }
    }
  });
}

TEST(GlooDTensor, PartialToRagged_MovesHalfOfWhatAnAllReduceMoves) {
  run_processes(2, [](const ProcessRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    const MeshCommunicator mesh(group, DeviceMesh({2}));
    const DTensor pending = DTensor::from_local(counted_up({8, 4}) * (self.rank + 1), mesh, {Partial()});
    const DTensor ragged = pending.redistribute({RaggedShard({0}, {1, 3})});
    EXPECT_EQ(counters->total().bytes_received, 4 * (self.rank == 0 ? 8 : 24));
    expect_equal(ragged.full_tensor(), counted_up({8, 4}) * 3);
  });
}

TEST(GlooDTensor, Case07_SourceCountsInsideTheGroup) {
  run_processes(4, [](const ProcessRank& self) {
    const MeshCommunicator mesh = mesh_of(self, DeviceMesh({2, 2}, {"dp", "tp"})).sub_mesh({"tp"});
    const at::Tensor x = at::arange(4, at::kFloat) + 100 * self.rank;
    const float base = self.rank < 2 ? 100 : 300;
    const bool first = self.rank % 2 == 0;
    expect_equal(distribute(x, mesh, {Shard(0)}, 1).local(),
                 first ? at::tensor({base, base + 1}) : at::tensor({base + 2, base + 3}));
    expect_equal(distribute(x, mesh, {RaggedShard({0}, {1, 3})}, 1).local(),
                 first ? at::tensor({base}) : at::tensor({base + 1, base + 2, base + 3}));
    EXPECT_EQ(
        error_of([&] { distribute(x, mesh, {Shard(0)}, 2); }),
        "OutOfRange: distribute: source 2 is out of range for mesh dim 'tp' of size 2; it counts inside the group");
  });
}

TEST(GlooDTensor, Case08_RanksOutsideTheMeshEnterNoCollective) {
  run_processes(4, [](const ProcessRank& self) {
    const MeshCommunicator mesh = mesh_of(self, DeviceMesh({2}, {"dp"}, {2, 3}));
    const DTensor sharded = distribute(at::arange(4, at::kFloat), mesh, {Shard(0)});
    const DTensor ragged = distribute(at::arange(4, at::kFloat), mesh, {RaggedShard({0}, {0, 4})});
    if (self.rank < 2) {
      EXPECT_EQ(sharded.local().numel(), 0);
      EXPECT_EQ(ragged.local().numel(), 0);
      return;
    }
    expect_equal(sharded.local(), self.rank == 2 ? at::tensor({0.0F, 1.0F}) : at::tensor({2.0F, 3.0F}));
    EXPECT_EQ(ragged.local().numel(), self.rank == 2 ? 0 : 4);
    expect_equal(sharded.full_tensor(), at::arange(4, at::kFloat));
    expect_equal(ragged.full_tensor(), at::arange(4, at::kFloat));
  });
}

TEST(GlooDTensor, Case26_NonContiguousInput_IsTakenInRowMajorOrder) {
  run_processes(2, [](const ProcessRank& self) {
    const MeshCommunicator mesh = mesh_of(self, DeviceMesh({2}));
    const at::Tensor x = at::arange(12, at::kFloat).view({3, 4}).t();
    expect_equal(distribute(x, mesh, {Shard(0)}, 0).local(), x.narrow(0, 2 * self.rank, 2));
    expect_equal(distribute(x, mesh, {Replicate{}}, 0).local(), x);
    for (const std::optional<int64_t> source : {std::optional<int64_t>(0), std::optional<int64_t>()}) {
      expect_equal(distribute(x, mesh, {RaggedShard({0, 1}, {1, 3})}, source).local(),
                   self.rank == 0 ? x.reshape({-1}).narrow(0, 0, 3) : x.reshape({-1}).narrow(0, 3, 9));
    }
  });
}

TEST(GlooDTensor, ARankThatDiesMidRedistribution_MakesItsPeersRaise) {
  const auto outcomes = run_processes_collecting(3, [](const ProcessRank& self) {
    const MeshCommunicator mesh = mesh_of(self, DeviceMesh({3}));
    const DTensor ragged = distribute(at::ones({3, 1 << 20}), mesh, {RaggedShard({0}, {0, 1, 2})});
    ragged.full_tensor();
    if (self.rank == 1) _exit(kDiedExitCode);
    ragged.full_tensor();
  });
  EXPECT_EQ(outcomes[1].exit_code, kDiedExitCode);
  for (const int survivor : {0, 2}) {
    const ProcessOutcome& outcome = outcomes[static_cast<size_t>(survivor)];
    EXPECT_NE(outcome.exit_code, 0) << "rank " << survivor;
    EXPECT_FALSE(outcome.killed_at_limit) << "rank " << survivor << " hung";
    EXPECT_THAT(outcome.error, testing::HasSubstr("rank 1"))
        << "rank " << survivor << " exit code " << outcome.exit_code;
  }
}

TEST(GlooDTensor, UnderTheCheck_UnlikeLayoutsRaiseOnAllRanks_NamingBothSides) {
  const ScopedCheckSetting check(CheckSetting::kOn);
  run_processes(2, [](const ProcessRank& self) {
    const MeshCommunicator mesh = mesh_of(self, DeviceMesh({2}));
    const DTensor whole = distribute(at::arange(8, at::kFloat), mesh, {Shard(0)});
    const std::vector<int64_t> units = self.rank == 0 ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{3, 1};
    EXPECT_THAT(
        error_of([&] { whole.redistribute({RaggedShard({0}, units)}); }),
        testing::AllOf(testing::StartsWith("FailedPrecondition: redistribute: "), testing::HasSubstr("rank 0: "),
                       testing::HasSubstr("rank 1: "), testing::HasSubstr("(1, 3)"), testing::HasSubstr("(3, 1)")));
  });
}

TEST(GlooDTensor, AnOptimizerStepByHand_OnRaggedWeights_EqualsOneProcess) {
  run_processes(3, [](const ProcessRank& self) {
    const MeshCommunicator mesh = mesh_of(self, DeviceMesh({3}));
    const at::Tensor start = counted_up({6, 4}) / 24;
    const DTensor weight = distribute(start.clone().requires_grad_(), mesh, {RaggedShard({0}, {2, 0, 1})});
    at::Tensor plain = start.clone().requires_grad_();
    for (int step = 0; step < 3; ++step) {
      // Each rank has data of its own; one process has them all.
      const auto loss = [&](const at::Tensor& w, int rank) {
        return ((w * (rank + 1)).sin() * counted_up({6, 4})).sum();
      };
      loss(weight.full_tensor(), self.rank).backward();
      for (int rank = 0; rank < 3; ++rank) loss(plain, rank).backward();
      const at::NoGradGuard no_grad;
      sub_(weight, *weight.grad(), 0.01);
      plain.sub_(plain.grad(), 0.01);
      weight.local().mutable_grad().zero_();
      plain.mutable_grad().zero_();
    }
    EXPECT_TRUE(at::allclose(weight.detach().full_tensor(), plain.detach(), 1e-5, 1e-6));
    EXPECT_EQ(weight.local().grad().numel(), weight.local().numel());
  });
}

}  // namespace
}  // namespace hyper_parallel::test
