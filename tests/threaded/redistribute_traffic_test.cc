// What a redistribution communicates, counted by a wrapping process group: the least possible, and nothing where
// nothing moves.

#include <algorithm>
#include <atomic>

#include "hyper_parallel/torch/counting_backend.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

constexpr int64_t kBytes = sizeof(double);

/// A rank whose group counts.
struct CountedRank {
  CountedRank(const ThreadRank& self, const DeviceMesh& over)
      : counted_group(wrap_counting(self.group)), mesh(counted_group.group, over) {}

  OperationCount total() const { return counted_group.counters->total(); }
  /// What `action` communicates on this rank.
  template <typename Action>
  OperationCount count(const Action& action) const {
    counted_group.counters->reset();
    action();
    return total();
  }

  CountedGroup counted_group;
  MeshCommunicator mesh;
};

/// The bytes of the elements that the rank owns under `target` and does not hold under `source`, found element by
/// element.
int64_t missing_bytes(const Layout& source, const Layout& target, const Shape& shape, int64_t rank) {
  const auto held = reference::owned_elements(reference::scheme_of(source, shape), rank);
  const auto needed = reference::owned_elements(reference::scheme_of(target, shape), rank);
  return kBytes *
         std::ranges::count_if(needed, [&](int64_t element) { return std::ranges::count(held, element) == 0; });
}

class RedistributeTraffic : public PathTest {
 protected:
  void expect_least_bytes(const DeviceMesh& over, const Shape& shape, const std::vector<std::string>& layouts) {
    std::atomic<int64_t> sent{0};
    std::atomic<int64_t> received{0};
    run(static_cast<int>(over.size()), [&](const ThreadRank& self) {
      const CountedRank rank(self, over);
      for (const std::string& source : layouts) {
        for (const std::string& target : layouts) {
          SCOPED_TRACE(str_cat(tuple_text(shape), ", rank ", self.rank, ": ", source, " -> ", target));
          const DTensor from = leaf(counted(shape), rank.mesh, source);
          std::optional<DTensor> to;
          const OperationCount forward = rank.count([&] { to = from.redistribute(parse_placements(target)); });
          EXPECT_EQ(forward.bytes_received, missing_bytes(from.layout(), to->layout(), shape, self.rank));
          const OperationCount backward = rank.count([&] { to->local().backward(at::ones_like(to->local())); });
          EXPECT_EQ(backward.bytes_received, missing_bytes(to->layout(), from.layout(), shape, self.rank));
          sent += forward.bytes_sent + backward.bytes_sent;
          received += forward.bytes_received + backward.bytes_received;
        }
      }
    });
    EXPECT_EQ(sent, received);
    EXPECT_GT(sent, 0);
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, RedistributeTraffic, ::testing::ValuesIn(unchecked_paths()), name_of);

TEST_P(RedistributeTraffic, EveryPairWithoutPartial_ReceivesWhatItOwnsAndDoesNotHold) {
  expect_least_bytes(DeviceMesh({3}), {5, 3},
                     {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 0, 4))", "RaggedShard((0,), (0, 5, 0))",
                      "RaggedShard((0, 1), (4, 4, 7))"});
  expect_least_bytes(DeviceMesh({4}, {"p"}, {2, 0, 3, 1}), {8, 4},
                     {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 2, 0, 5))", "RaggedShard((0, 1), (1, 0, 0, 1))"});
  expect_least_bytes(
      DeviceMesh({2, 2}), {5, 3},
      {"R, R", "S(0), R", "R, S(0)", "S(0), S(0)", "S(0), S(1)", "S(1), S(0)", "R, RaggedShard((0,), (2, 3))",
       "RaggedShard((0, 1), (4, 11)), R", "RaggedShard((0,), (0, 1)), R"});
}

TEST_P(RedistributeTraffic, EqualLayout_IsTheSameTensorAndCallsNothing) {
  run(4, [](const ThreadRank& self) {
    const CountedRank rank(self, DeviceMesh({2, 2}));
    for (const std::string text : {"R, R", "S(0), S(1)", "S(-1), R", "P, P(max)", "R, RaggedShard((0,), (1, 5))"}) {
      const DTensor from = leaf(counted({6, 4}), rank.mesh, text);
      const OperationCount count = rank.count([&] {
        EXPECT_TRUE(from.redistribute(parse_placements(text)).local().is_same(from.local()));
        EXPECT_TRUE(from.redistribute(from.placements()).local().is_same(from.local()));
      });
      EXPECT_EQ(count.calls, 0);
    }
    const DTensor whole = leaf(counted({6, 4}), rank.mesh, "R, R");
    EXPECT_EQ(rank.count([&] { expect_equal(whole.full_tensor(), counted({6, 4})); }).calls, 0);
  });
}

TEST_P(RedistributeTraffic, OtherUnitsForTheSameIntervals_CallNothing) {
  run(2, [](const ThreadRank& self) {
    const CountedRank rank(self, DeviceMesh({2}));
    const DTensor from = laid_out(counted({8}), rank.mesh, "RaggedShard((0,), (1, 3))");
    std::optional<DTensor> to;
    EXPECT_EQ(rank.count([&] { to = from.redistribute(parse_placements("RaggedShard((0,), (2, 6))")); }).calls, 0);
    expect_equal(to->local(), from.local());
    EXPECT_EQ(to->placements(), parse_placements("RaggedShard((0,), (2, 6))"));
  });
}

TEST_P(RedistributeTraffic, ReplicateToAnySplit_IsASliceWithItsOwnStorage) {
  run(2, [](const ThreadRank& self) {
    const CountedRank rank(self, DeviceMesh({2}));
    const DTensor whole = laid_out(counted({6, 4}), rank.mesh, "R");
    for (const std::string text : {"S(0)", "S(1)", "RaggedShard((0,), (1, 2))", "RaggedShard((0,), (0, 1))"}) {
      std::optional<DTensor> part;
      EXPECT_EQ(rank.count([&] { part = whole.redistribute(parse_placements(text)); }).calls, 0);
      part->local().zero_();
      expect_equal(whole.local(), counted({6, 4}));
    }
  });
}

TEST_P(RedistributeTraffic, PartialToSplit_MovesHalfTheBytesOfAnAllReduce) {
  for (const std::string target : {"RaggedShard((0,), (1, 2, 0, 5))", "S(0)"}) {
    std::atomic<int64_t> ours{0};
    std::atomic<int64_t> of_all_reduce{0};
    run(4, [&](const ThreadRank& self) {
      const CountedRank rank(self, DeviceMesh({4}));
      const DTensor share = DTensor::from_local(counted({8, 4}), rank.mesh, {Partial()}, Shape{8, 4});
      ours += rank.count([&] { share.redistribute(parse_placements(target)); }).bytes_received;
      std::vector<at::Tensor> tensors{counted({8, 4})};
      of_all_reduce += rank.count([&] { rank.counted_group.group->allreduce(tensors)->wait(); }).bytes_received;
    });
    EXPECT_EQ(ours, 3 * 32 * kBytes);
    EXPECT_EQ(2 * ours, of_all_reduce);
  }
}

TEST_P(RedistributeTraffic, BackwardOfAGatherThatStaysInside_CallsNothing) {
  run(3, [](const ThreadRank& self) {
    const CountedRank rank(self, DeviceMesh({3}));
    const DTensor from = leaf(counted({6}), rank.mesh, "RaggedShard((0,), (2, 0, 4))");
    const DTensor to = from.redistribute({Replicate{}});
    EXPECT_EQ(rank.count([&] { to.local().backward(at::ones({6}, at::kDouble)); }).calls, 0);
  });
}

}  // namespace
}  // namespace hyper_parallel::test
