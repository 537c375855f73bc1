#include "hyper_parallel/torch/messages.h"

#include <stdexcept>

#include "tests/threaded/both_paths.h"

namespace hyper_parallel::test {
namespace {

using Round = std::vector<Message>;

/// What `fails` threw on each of `size` ranks.
std::vector<std::string> errors(int size, const std::function<void(const ThreadRank&)>& fails,
                                std::chrono::milliseconds timeout = std::chrono::milliseconds(200)) {
  std::vector<std::string> texts(static_cast<size_t>(size));
  run_ranks(size,
            [&](const ThreadRank& self) { texts[static_cast<size_t>(self.rank)] = error_of([&] { fails(self); }); },
            {.timeout = timeout});
  return texts;
}

TEST(ExchangeMessages, ViewsAtAnyOffset_AreSentAndReceivedInPlace) {
  run_ranks(2, [](const ThreadRank& self) {
    const at::Tensor source = at::arange(10, at::kFloat) + 100 * self.rank;
    const at::Tensor target = at::zeros({6});
    const Round sends{{1 - self.rank, source.slice(0, 3, 5)}};
    const Round receives{{1 - self.rank, target.slice(0, 4, 6)}};
    exchange_messages(*self.group, sends, receives);
    const auto peer = static_cast<float>(100 * (1 - self.rank));
    expect_equal(target, floats({0, 0, 0, 0, peer + 3, peer + 4}));
  });
}

TEST(ExchangeMessages, MessagesOfOneSize_KeepTheirOrder) {
  run_ranks(2, [](const ThreadRank& self) {
    const at::Tensor target = at::zeros({3});
    Round round;
    for (int i = 0; i < 3; ++i) {
      round.push_back(
          {1 - self.rank, self.rank == 0 ? floats({static_cast<float>(i + 1)}) : target.slice(0, i, i + 1)});
    }
    if (self.rank == 0) {
      exchange_messages(*self.group, round, {});
    } else {
      exchange_messages(*self.group, {}, round);
      expect_equal(target, floats({1, 2, 3}));
    }
  });
}

TEST(ExchangeMessages, Case25_EmptyMessages_AreSkippedByBothSides) {
  run_ranks(2, [](const ThreadRank& self) {
    // Only one side lists the empty message: a sender that posted it would wait for ever.
    const Round empty{{1 - self.rank, at::zeros({0, 4})}};
    if (self.rank == 0) {
      exchange_messages(*self.group, empty, {});
    } else {
      exchange_messages(*self.group, {}, {});
    }
  });
}

TEST(ExchangeMessages, Meanwhile_RunsOnceAlsoInAnEmptyRound) {
  run_ranks(2, [](const ThreadRank& self) {
    int runs = 0;
    exchange_messages(*self.group, {}, {}, [&] { ++runs; });
    EXPECT_EQ(runs, 1);
    const at::Tensor target = at::zeros({1});
    const Round sends{{1 - self.rank, at::ones({1})}};
    const Round receives{{1 - self.rank, target}};
    exchange_messages(*self.group, sends, receives, [&] { ++runs; });
    EXPECT_EQ(runs, 2);
  });
}

TEST(ExchangeMessages, BadPeer_IsRefusedBeforeAnythingIsPosted) {
  run_ranks(2, [](const ThreadRank& self) {
    const Round outside{{2, at::ones({1})}};
    EXPECT_EQ(error_of([&] { exchange_messages(*self.group, outside, {}); }),
              "InvalidArgument: exchange_messages: send peer is 2 but must be in [0, 2)");
    const Round own{{self.rank, at::ones({1})}};
    EXPECT_EQ(error_of([&] { exchange_messages(*self.group, {}, own); }),
              str_cat("InvalidArgument: exchange_messages: receive peer is ", self.rank,
                      ", this rank itself; copy locally instead"));
  });
}

TEST(ExchangeMessages, StridedTensor_IsRefused) {
  run_ranks(2, [](const ThreadRank& self) {
    const Round round{{1 - self.rank, at::ones({2, 3}).t()}};
    EXPECT_EQ(error_of([&] { exchange_messages(*self.group, round, {}); }),
              str_cat("InvalidArgument: exchange_messages: send tensor for peer ", 1 - self.rank,
                      " must be contiguous and without lazy conjugation or negation"));
  });
}

TEST(ExchangeMessages, TensorOfForeignDevice_IsRefused) {
  run_ranks(2, [](const ThreadRank& self) {
    const Round round{{1 - self.rank, at::empty({2}, at::TensorOptions().device(at::kMeta))}};
    EXPECT_EQ(error_of([&] { exchange_messages(*self.group, round, {}); }),
              "FailedPrecondition: exchange_messages: the group has no backend for meta tensors");
  });
}

TEST(ExchangeMessages, UnequalSizes_NeverMatch) {
  const auto texts = errors(2, [](const ThreadRank& self) {
    const Round round{{1 - self.rank, at::ones({4 + self.rank})}};
    if (self.rank == 0) {
      exchange_messages(*self.group, round, {});
    } else {
      exchange_messages(*self.group, {}, round);
    }
  });
  EXPECT_EQ(
      texts[0],
      "FailedPrecondition: exchange_messages: rank 0 of 2 could not send 16 bytes to rank 1: rank 0 send to rank 1: "
      "timed out after 200 ms");
  EXPECT_EQ(texts[1],
            "FailedPrecondition: exchange_messages: rank 1 of 2 could not receive 20 bytes from rank 0: rank 1 receive "
            "from rank 0: timed out after 200 ms");
}

TEST(ExchangeMessages, MeanwhileThrows_TheMessagesInFlightLetGoOfTheirMemory) {
  // Rank 0 leaves while its receive is posted and frees the memory; rank 1's send must not write there.
  run_ranks(2,
            [](const ThreadRank& self) {
              if (self.rank == 0) {
                const Round receives{{1, at::empty({1 << 16})}};
                EXPECT_THROW(exchange_messages(*self.group, {}, receives, [] { throw std::logic_error("local"); }),
                             std::logic_error);
                self.group->barrier()->wait();
              } else {
                self.group->barrier()->wait();
                const Round sends{{0, at::ones({1 << 16})}};
                EXPECT_EQ(error_of([&] { exchange_messages(*self.group, sends, {}); }).substr(0, 19),
                          "FailedPrecondition:");
              }
            },
            {.timeout = std::chrono::milliseconds(200)});
}

TEST(MessageQueue, Destroyed_TheMessagesInFlightLetGoOfTheirMemory) {
  run_ranks(2,
            [](const ThreadRank& self) {
              if (self.rank == 0) {
                {
                  MessageQueue queue(*self.group);
                  queue.receive({1, at::empty({1 << 16})});
                }
                self.group->barrier()->wait();
              } else {
                self.group->barrier()->wait();
                MessageQueue queue(*self.group);
                queue.send({0, at::ones({1 << 16})});
                EXPECT_EQ(error_of([&] { queue.finish(); }).substr(0, 19), "FailedPrecondition:");
              }
            },
            {.timeout = std::chrono::milliseconds(200)});
}

TEST(MessageQueue, Receives_AreWaitedForInOrder) {
  run_ranks(2, [](const ThreadRank& self) {
    MessageQueue queue(*self.group);
    if (self.rank == 0) {
      queue.send({1, floats({1})});
      queue.send({1, floats({2})});
    } else {
      const at::Tensor target = at::zeros({2});
      queue.receive({0, target.slice(0, 0, 1)});
      queue.receive({0, target.slice(0, 1, 2)});
      queue.wait_next_receive();
      EXPECT_EQ(target[0].item<float>(), 1.0F);
      queue.finish();
      expect_equal(target, floats({1, 2}));
    }
    queue.finish();
  });
}

}  // namespace
}  // namespace hyper_parallel::test
