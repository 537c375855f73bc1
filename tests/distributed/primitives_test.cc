// The primitives between real processes over Gloo.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <numeric>

#include "hyper_parallel/torch/counting_backend.h"
#include "hyper_parallel/torch/gloo_group.h"
#include "hyper_parallel/torch/group_check.h"
#include "hyper_parallel/torch/messages.h"
#include "hyper_parallel/torch/variable_all_gather.h"
#include "hyper_parallel/torch/variable_all_to_all.h"
#include "hyper_parallel/torch/variable_reduce_scatter.h"
#include "tests/distributed/process_pool.h"
#include "tests/support/error_of.h"

namespace hyper_parallel::test {
namespace {

using Splits = std::vector<int64_t>;

constexpr int kDiedExitCode = 42;
constexpr std::chrono::milliseconds kShort{1500};

void expect_equal(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(actual, expected)) << "actual:\n" << actual << "\nexpected:\n" << expected;
}

at::Tensor own_rows(const at::Tensor& whole, const Splits& splits, int rank) {
  const int64_t begin = std::accumulate(splits.begin(), splits.begin() + rank, int64_t{0});
  return whole.narrow(0, begin, splits[static_cast<size_t>(rank)]).clone();
}

/// A port of the loopback interface that nobody listens on.
int64_t free_port() {
  const int socket_number = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  HP_CHECK(bind(socket_number, generic, length) == 0 && getsockname(socket_number, generic, &length) == 0, kInternal,
           "no free port");
  close(socket_number);
  return ntohs(address.sin_port);
}

TEST(GlooPrimitives, VariableAllGather_ForwardAndBackwardAreRight) {
  run_processes(3, [](const ProcessRank& self) {
    const Splits splits{2, 0, 4};
    const at::Tensor whole = at::arange(6, at::kFloat);
    const at::Tensor input = own_rows(whole, splits, self.rank).requires_grad_();
    const at::Tensor output = differentiable_variable_all_gather(input, splits, self.group);
    expect_equal(output.detach(), whole);
    (output * at::arange(1, 7, at::kFloat) * (self.rank + 1)).sum().backward();
    expect_equal(input.grad(), own_rows(at::arange(1, 7, at::kFloat) * 6, splits, self.rank));
  });
}

TEST(GlooPrimitives, VariableAllToAll_ForwardAndBackwardAreRight) {
  run_processes(2, [](const ProcessRank& self) {
    const bool first = self.rank == 0;
    const at::Tensor input = (first ? at::arange(3, at::kFloat) : at::full({1}, 9.0F)).requires_grad_();
    const at::Tensor output = differentiable_all_to_all_single(input, first ? Splits{1, 2} : Splits{0, 1},
                                                               first ? Splits{1, 0} : Splits{2, 1}, self.group);
    expect_equal(output.detach(), first ? at::tensor({0.0F}) : at::tensor({1.0F, 2.0F, 9.0F}));
    (output * at::arange(1, output.numel() + 1, at::kFloat) * (self.rank + 1)).sum().backward();
    expect_equal(input.grad(), first ? at::tensor({1.0F, 2.0F, 4.0F}) : at::tensor({6.0F}));
  });
}

TEST(GlooPrimitives, VariableReduceScatter_OfManyChunksIsRight) {
  run_processes(3, [](const ProcessRank& self) {
    const int64_t rows = (int64_t{5} << 18) + 3;
    const Splits splits{rows, rows - 7, 7};
    const at::Tensor input = at::arange(2 * rows, at::kInt);
    const at::Tensor output =
        variable_reduce_scatter(input * (int64_t{1} << self.rank), splits, Reduction::kSum, self.group);
    expect_equal(output, own_rows(input * 7, splits, self.rank));
  });
}

TEST(GlooPrimitives, Case25_EveryRankEmpty_NeitherCrashesNorHangs) {
  run_processes(2, [](const ProcessRank& self) {
    expect_equal(differentiable_variable_all_gather(at::zeros({0, 4}), Splits{0, 0}, self.group), at::zeros({0, 4}));
    expect_equal(differentiable_all_to_all_single(at::zeros({0, 4}), Splits{0, 0}, Splits{0, 0}, self.group),
                 at::zeros({0, 4}));
    const std::vector<Message> empty{{1 - self.rank, at::zeros({0})}};
    exchange_messages(*self.group, empty, empty);
  });
}

TEST(GlooPrimitives, Case26_NonContiguousInput_IsSentInRowMajorOrder) {
  run_processes(2, [](const ProcessRank& self) {
    const at::Tensor strided = at::arange(12, at::kFloat).view({3, 4}).t();
    expect_equal(differentiable_variable_all_gather(strided, Splits{4, 4}, self.group), at::cat({strided, strided}));
    const at::Tensor half = strided.narrow(0, 2 * self.rank, 2);
    expect_equal(differentiable_all_to_all_single(strided, Splits{2, 2}, Splits{2, 2}, self.group),
                 at::cat({half, half}));
    expect_equal(variable_reduce_scatter(strided, Splits{2, 2}, Reduction::kSum, self.group), half * 2);
  });
}

TEST(GlooPrimitives, EveryDtype_TravelsInPlaceAtAnyOffset) {
  run_processes(2, [](const ProcessRank& self) {
    for (const at::ScalarType dtype : {at::kBool, at::kByte, at::kLong, at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn,
                                       at::kDouble, at::kComplexFloat}) {
      const at::Tensor source = at::arange(20, at::kLong).remainder(3).to(dtype);
      const at::Tensor target = at::zeros({20}, at::kLong).to(dtype);
      const std::vector<Message> sends{{1 - self.rank, source.slice(0, 3, 9)}};
      const std::vector<Message> receives{{1 - self.rank, target.slice(0, 5, 11)}};
      exchange_messages(*self.group, sends, receives);
      expect_equal(target.slice(0, 5, 11).view(at::kByte), source.slice(0, 3, 9).view(at::kByte));
      EXPECT_FALSE(target.view(at::kByte).slice(0, 0, 5 * target.element_size()).any().item<bool>());
    }
  });
}

TEST(GlooPrimitives, CountedGroup_ReceivesExactlyWhatItLacks) {
  run_processes(4, [](const ProcessRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    const Splits splits{1, 2, 0, 5};
    differentiable_variable_all_gather(at::zeros({splits[static_cast<size_t>(self.rank)]}), splits, group);
    EXPECT_EQ(counters->total().bytes_received, (8 - splits[static_cast<size_t>(self.rank)]) * 4);
    EXPECT_EQ(counters->of(OperationKind::kAllGather).calls, 0);
  });
}

TEST(GlooPrimitives, CheckOn_FaultOfOneRankRaisesOnAllAtOnce) {
  const ScopedCheckSetting on(CheckSetting::kOn);
  run_processes(2, [](const ProcessRank& self) {
    const std::string text =
        error_of([&] { differentiable_variable_all_gather(at::zeros({self.rank + 2}), Splits{2, 2}, self.group); });
    const std::string fault =
        "differentiable_variable_all_gather: output_splits[1] is 2 but this rank's input has 3 rows";
    EXPECT_EQ(text, self.rank == 1 ? "InvalidArgument: " + fault
                                   : "FailedPrecondition: differentiable_variable_all_gather: refused on another rank: "
                                     "rank 1: " +
                                         fault);
    expect_equal(differentiable_variable_all_gather(at::ones({1}), Splits{1, 1}, self.group), at::ones({2}));
  });
}

TEST(GlooPrimitives, Case28_PairThatDisagrees_GetsNoDataAndRaisesAtTheTimeout) {
  const auto outcomes = run_processes_collecting(2,
                                                 [](const ProcessRank& self) {
                                                   const bool first = self.rank == 0;
                                                   differentiable_all_to_all_single(
                                                       at::zeros({first ? 4 : 2}), first ? Splits{1, 3} : Splits{1, 1},
                                                       first ? Splits{1, 1} : Splits{2, 1}, self.group);
                                                 },
                                                 {.group_timeout = kShort});
  for (const ProcessOutcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.killed_at_limit);
    EXPECT_THAT(outcome.error, ::testing::HasSubstr("exchange_messages: rank"));
    EXPECT_LT(outcome.duration, 4 * kShort);
  }
}

TEST(GlooPrimitives, RankThatDiesMidCollective_MakesItsPeersRaiseWithinTheTimeout) {
  const auto outcomes = run_processes_collecting(3,
                                                 [](const ProcessRank& self) {
                                                   const at::Tensor ours = at::ones({1 << 20});
                                                   std::vector<Message> sends;
                                                   std::vector<Message> receives;
                                                   for (int peer = 0; peer < self.size; ++peer) {
                                                     if (peer == self.rank) continue;
                                                     sends.push_back({peer, ours});
                                                     receives.push_back({peer, at::empty_like(ours)});
                                                   }
                                                   exchange_messages(*self.group, sends, receives, [&] {
                                                     if (self.rank == 1) _exit(kDiedExitCode);
                                                   });
                                                   // The dead rank's messages may still have left it; the next round
                                                   // cannot succeed.
                                                   exchange_messages(*self.group, sends, receives);
                                                 },
                                                 {.group_timeout = kShort});
  EXPECT_EQ(outcomes[1].exit_code, kDiedExitCode);
  for (const size_t survivor : {size_t{0}, size_t{2}}) {
    EXPECT_FALSE(outcomes[survivor].killed_at_limit);
    EXPECT_THAT(outcomes[survivor].error, ::testing::ContainsRegex("exchange_messages: rank [02] of 3 could not"));
    EXPECT_LT(outcomes[survivor].duration, 4 * kShort);
  }
}

TEST(GlooGroup, BadArguments_AreRefused) {
  run_processes(1, [](const ProcessRank& self) {
    EXPECT_EQ(error_of([] { create_gloo_group(nullptr, 0, 1); }), "Type: store is null but must be a c10d::Store");
    const auto store = create_file_store(self.folder + "/other", 2);
    EXPECT_EQ(error_of([&] { create_gloo_group(store, 2, 2); }), "InvalidArgument: rank is 2 but must be in [0, 2)");
    EXPECT_EQ(error_of([&] { create_gloo_group(store, 0, 0); }),
              "InvalidArgument: group size is 0 but must be positive and fit in int32");
  });
}

TEST(GlooGroup, PeerThatNeverComes_RaisesWithinTheTimeout) {
  run_processes(1, [](const ProcessRank& self) {
    const auto store = create_file_store(self.folder + "/lonely", 2);
    const std::string text = error_of([&] { create_gloo_group(store, 0, 2, {.timeout = kShort, .name = "pair"}); });
    EXPECT_THAT(text, ::testing::StartsWith(
                          "FailedPrecondition: rank 0 of Gloo group 'pair' (size 2) could not connect on 127.0.0.1: "));
  });
}

TEST(GlooGroup, FileStoreInAMissingFolder_IsRefused) {
  run_processes(1, [](const ProcessRank& self) {
    EXPECT_THAT(error_of([&] { create_file_store(self.folder + "/missing/file", 1); }),
                ::testing::ContainsRegex(
                    "^FailedPrecondition: file store '.*/missing/file' cannot be opened: .*/missing is not a folder$"));
  });
}

TEST(GlooGroup, TcpStore_ServesAGroupAndATakenPortIsNamed) {
  run_processes(2, [](const ProcessRank& self) {
    // A port that the kernel picks for rank 0 and that rank 1 learns through the first group.
    at::Tensor port = at::zeros({1}, at::kLong);
    std::vector<at::Tensor> tensors{port};
    if (self.rank == 0) port.fill_(free_port());
    self.group->broadcast(tensors)->wait();
    const auto number = static_cast<uint16_t>(port.item<int64_t>());
    const auto store = create_tcp_store("127.0.0.1", number, self.rank, 2, std::chrono::seconds(10));
    const auto group = create_gloo_group(store, self.rank, 2, {.timeout = std::chrono::seconds(10), .name = "tcp"});
    expect_equal(differentiable_variable_all_gather(at::ones({1}), Splits{1, 1}, group), at::ones({2}));
    if (self.rank == 0) {
      EXPECT_THAT(
          error_of([&] { create_tcp_store("127.0.0.1", number, 0, 2, kShort); }),
          ::testing::StartsWith(str_cat("FailedPrecondition: rank 0 cannot serve a store at 127.0.0.1:", number)));
    }
    self.group->barrier()->wait();
  });
}

TEST(ProcessPool, FailuresOfAProcess_AreReported) {
  const auto outcomes = run_processes_collecting(3,
                                                 [](const ProcessRank& self) {
                                                   HP_CHECK(self.rank != 0, kInternal, "thrown");
                                                   if (self.rank == 1) _exit(kDiedExitCode);
                                                   sleep(20);
                                                 },
                                                 {.limit = std::chrono::seconds(2)});
  EXPECT_EQ(outcomes[0].error, "thrown");
  EXPECT_NE(outcomes[0].exit_code, 0);
  EXPECT_EQ(outcomes[1].exit_code, kDiedExitCode);
  EXPECT_TRUE(outcomes[2].killed_at_limit);
}

}  // namespace
}  // namespace hyper_parallel::test
