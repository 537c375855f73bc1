#include "hyper_parallel/torch/group_exchange.h"

#include "tests/threaded/both_paths.h"

namespace hyper_parallel::test {
namespace {

using Strings = std::vector<std::string>;

// One message of each kind: none, one byte, eight (as many as a message's size takes), zeros, and one of 5 MB.
std::string message_of(int64_t rank, int64_t round) {
  switch ((rank + round) % 5) {
    case 0:
      return "";
    case 1:
      return std::string(1, static_cast<char>('a' + rank));
    case 2:
      return str_cat("rank ", rank, "=", round);
    case 3:
      return std::string(1000, '\0') + str_cat(rank);
    default:
      return std::string(5'000'000, static_cast<char>('A' + rank)) + str_cat(round);
  }
}

Strings messages_of(int64_t size, int64_t round) {
  Strings messages;
  for (int64_t rank = 0; rank < size; ++rank) messages.push_back(message_of(rank, round));
  return messages;
}

// What each rank throws, with a short group timeout.
Strings errors(int size, const std::function<void(Exchange&)>& fails) {
  Strings texts(static_cast<size_t>(size));
  const auto body = [&](const ThreadRank& self) {
    GroupExchange exchange(self.group);
    texts[static_cast<size_t>(self.rank)] = error_of([&] { fails(exchange); });
  };
  run_ranks(size, body, {.timeout = std::chrono::milliseconds(300)});
  return texts;
}

TEST(GroupExchange, RankAndSize_AreTheGroups) {
  run_ranks(3, [](const ThreadRank& self) {
    if (self.rank == 1) return;
    const GroupExchange exchange(self.subgroup({2, 0}));
    EXPECT_EQ(exchange.rank(), self.rank == 2 ? 0 : 1);
    EXPECT_EQ(exchange.size(), 2);
    EXPECT_EQ(exchange.is_coordinator(), self.rank == 2);
  });
}

TEST(GroupExchange, Gather_BringsEveryMessageToTheCoordinator) {
  for (const int size : {1, 2, 4}) {
    run_ranks(size, [](const ThreadRank& self) {
      GroupExchange exchange(self.group);
      for (int64_t round = 0; round < 5; ++round) {
        const Strings expected = self.rank == 0 ? messages_of(self.size, round) : Strings();
        EXPECT_TRUE(exchange.gather(message_of(self.rank, round)) == expected) << "round " << round;
      }
    });
  }
}

TEST(GroupExchange, Scatter_BringsEachRankItsMessage) {
  for (const int size : {1, 2, 4}) {
    run_ranks(size, [](const ThreadRank& self) {
      GroupExchange exchange(self.group);
      for (int64_t round = 0; round < 5; ++round) {
        Strings messages = self.rank == 0 ? messages_of(self.size, round) : Strings{"does not count"};
        EXPECT_TRUE(exchange.scatter(std::move(messages)) == message_of(self.rank, round)) << "round " << round;
      }
    });
  }
}

TEST(GroupExchange, Broadcast_BringsTheCoordinatorsMessageToAll) {
  for (const int size : {1, 2, 4}) {
    run_ranks(size, [](const ThreadRank& self) {
      GroupExchange exchange(self.group);
      for (int64_t round = 0; round < 5; ++round) {
        EXPECT_TRUE(exchange.broadcast(message_of(self.rank, round)) == message_of(0, round)) << "round " << round;
      }
    });
  }
}

TEST(GroupExchange, Round_GivesEachRankItsAnswer) {
  for (const std::string backend : {"gloo", "threaded"}) {
    run_ranks(
        4,
        [](const ThreadRank& self) {
          GroupExchange exchange(self.group);
          const auto count = [](const Strings& messages) {
            Strings answers;
            for (const std::string& message : messages) answers.push_back(str_cat(message, " of ", messages.size()));
            return answers;
          };
          EXPECT_EQ(
              run_round(exchange, "counting", [&] { return str_cat(self.rank); }, count), str_cat(self.rank, " of 4"));
        },
        {.backend_name = backend});
  }
}

TEST(GroupExchange, FaultOfOneRank_RaisesOnAllAndTheNextRoundStillMatches) {
  EXPECT_EQ(errors(3,
                   [](Exchange& exchange) {
                     const auto fails = [&] { HP_CHECK(exchange.rank() != 2, kType, "'x' is a set"); };
                     EXPECT_EQ(error_of([&] { agree(exchange, "planning", fails); }),
                               "Type: planning failed on rank 2: 'x' is a set");
                     agree(exchange, "planning", [] {});
                   }),
            Strings(3, "no error"));
}

TEST(GroupExchange, PeerThatNeverComes_RaisesAfterTheTimeout) {
  const Strings texts = errors(2, [](Exchange& exchange) {
    if (exchange.rank() == 0) exchange.gather("mine");
  });
  EXPECT_EQ(texts[0].substr(0, 97),
            "FailedPrecondition: exchange_messages: rank 0 of 2 could not receive 8 bytes from rank 1: rank 0 ");
  EXPECT_EQ(texts[1], "no error");
  EXPECT_EQ(errors(2,
                   [](Exchange& exchange) {
                     if (exchange.rank() == 1) exchange.scatter({});
                   })[1]
                .substr(0, 97),
            "FailedPrecondition: exchange_messages: rank 1 of 2 could not receive 8 bytes from rank 0: rank 1 ");
}

TEST(GroupExchange, ScatterOfTooFewMessages_IsRefusedBeforeAnythingIsSent) {
  EXPECT_EQ(errors(1, [](Exchange& exchange) { exchange.scatter({"a", "b"}); })[0],
            "InvalidArgument: scatter got 2 messages but the group has 1 ranks");
}

TEST(GroupExchange, NullGroup_IsRefused) {
  EXPECT_EQ(error_of([] { const GroupExchange exchange{GroupPtr()}; }).substr(0, 17), "Type: checkpoint:");
}

TEST(GroupExchange, GroupWithoutBackendForCpuTensors_IsRefused) {
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::intrusive_ptr<c10d::Store>(), 0, 1);
  EXPECT_EQ(error_of([&] { const GroupExchange exchange(group); }),
            "FailedPrecondition: checkpoint: the process group has no backend for CPU tensors, over which its messages "
            "go; pass a Gloo group of the same ranks");
}

}  // namespace
}  // namespace hyper_parallel::test
