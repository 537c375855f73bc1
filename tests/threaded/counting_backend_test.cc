#include "hyper_parallel/torch/counting_backend.h"

#include "hyper_parallel/torch/variable_all_gather.h"
#include "hyper_parallel/torch/variable_all_to_all.h"
#include "hyper_parallel/torch/variable_reduce_scatter.h"
#include "tests/threaded/both_paths.h"

namespace hyper_parallel::test {
namespace {

using Splits = std::vector<int64_t>;

class CountingBackend : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, CountingBackend, ::testing::ValuesIn(unchecked_paths()), name_of);

TEST_P(CountingBackend, VariableAllGather_ReceivesWhatTheOthersHold) {
  const Splits splits{1, 2, 0, 5};
  run(4, [&](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    const int64_t own = splits[static_cast<size_t>(self.rank)];
    differentiable_variable_all_gather(at::zeros({own, 3}), splits, group);
    EXPECT_EQ(counters->total().bytes_received, (8 - own) * 3 * 4);
  });
}

TEST_P(CountingBackend, VariableAllToAll_SendsAndReceivesItsPieces) {
  run(2, [](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    const bool first = self.rank == 0;
    differentiable_all_to_all_single(at::zeros({first ? 3 : 1}, at::kDouble), first ? Splits{1, 2} : Splits{0, 1},
                                     first ? Splits{1, 0} : Splits{2, 1}, group);
    EXPECT_EQ(counters->total().bytes_sent, first ? 16 : 0);
    EXPECT_EQ(counters->total().bytes_received, first ? 0 : 16);
  });
}

TEST_P(CountingBackend, VariableReduceScatter_SendsTheSharesOfTheOthers) {
  run(2, [](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    variable_reduce_scatter(at::zeros({4}), Splits{1, 3}, Reduction::kSum, group);
    EXPECT_EQ(counters->total().bytes_sent, self.rank == 0 ? 12 : 4);
    EXPECT_EQ(counters->total().bytes_received, self.rank == 0 ? 4 : 12);
  });
}

TEST_P(CountingBackend, Collectives_AreCountedByTheirArguments) {
  run(4, [](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    std::vector<at::Tensor> tensors{at::zeros({8})};
    group->allreduce(tensors)->wait();
    EXPECT_EQ(counters->of(OperationKind::kAllReduce), (OperationCount{1, 48, 48}));
    group->broadcast(tensors, {.rootRank = 1})->wait();
    EXPECT_EQ(counters->of(OperationKind::kBroadcast),
              (self.rank == 1 ? OperationCount{1, 32, 0} : OperationCount{1, 0, 32}));
    group->barrier()->wait();
    EXPECT_EQ(counters->of(OperationKind::kBarrier), (OperationCount{1, 0, 0}));
    EXPECT_EQ(counters->total().calls, 3);
  });
}

TEST_P(CountingBackend, WrappedGroup_KeepsNameRankAndStore) {
  run(2, [](const ThreadRank& self) {
    const auto group = wrap_counting(self.group).group;
    EXPECT_EQ(group->getBackend(at::kCPU)->getBackendName(), self.group->getBackend(at::kCPU)->getBackendName());
    EXPECT_EQ(group->getBackendName(), self.group->getBackendName());
    EXPECT_EQ(group->getGroupName(), self.group->getGroupName());
    EXPECT_EQ(group->getRank(), self.rank);
    EXPECT_EQ(group->getStore(), self.group->getStore());
    EXPECT_EQ(group_timeout(*group), std::chrono::seconds(10));
  });
}

TEST_P(CountingBackend, OneRank_MovesNothing) {
  run(1, [](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    differentiable_variable_all_gather(at::zeros({4}), Splits{4}, group);
    std::vector<at::Tensor> tensors{at::zeros({4})};
    group->allreduce(tensors)->wait();
    group->broadcast(tensors)->wait();
    EXPECT_EQ(counters->total().bytes_sent, 0);
    EXPECT_EQ(counters->total().bytes_received, 0);
  });
}

TEST(CommunicationCounters, Text_ListsTheKindsThatWereCalled) {
  CommunicationCounters counters;
  EXPECT_EQ(counters.to_string(), "");
  counters.add(OperationKind::kSend, {1, 32, 0});
  counters.add(OperationKind::kSend, {2, 64, 0});
  counters.add(OperationKind::kAllToAll, {1, 5, 7});
  EXPECT_EQ(counters.to_string(),
            "send: 3 calls, 96 bytes sent, 0 bytes received\nall_to_all: 1 calls, 5 bytes sent, 7 bytes received\n");
}

TEST(CommunicationCounters, Reset_StartsAtZero) {
  CommunicationCounters counters;
  counters.add(OperationKind::kReceive, {1, 0, 8});
  counters.reset();
  EXPECT_EQ(counters.total(), OperationCount{});
}

TEST(WrapCounting, NullGroup_IsATypeError) {
  EXPECT_EQ(error_of([] { wrap_counting(nullptr); }), "Type: wrap_counting: group is null but must be a process group");
}

}  // namespace
}  // namespace hyper_parallel::test
