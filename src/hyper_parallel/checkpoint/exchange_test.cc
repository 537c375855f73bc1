#include "hyper_parallel/checkpoint/exchange.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/thread_exchange.h"

namespace hyper_parallel {
namespace {

using Strings = std::vector<std::string>;

std::vector<std::string> same_answers(std::vector<std::string> messages) { return messages; }

// What every rank throws if rank 1 of 3 throws by `fail`.
Strings errors_if_rank_1_does(const std::function<void()>& fail) {
  return errors_of_ranks(3, [&](Exchange& exchange) {
    agree(exchange, "the step", [&] {
      if (exchange.rank() == 1) fail();
    });
  });
}

TEST(RunRound, MessagesReachTheCoordinator_AndItsAnswersTheRanks) {
  for (const int64_t size : {1, 2, 5}) {
    Strings seen;
    Strings answers(static_cast<size_t>(size));
    run_ranks(size, [&](Exchange& exchange) {
      answers[static_cast<size_t>(exchange.rank())] = run_round(
          exchange, "step", [&] { return str_cat("from ", exchange.rank()); },
          [&](Strings messages) {
            seen = messages;
            for (std::string& message : messages) message = str_cat("answer to ", message);
            return messages;
          });
    });
    for (size_t rank = 0; rank < static_cast<size_t>(size); ++rank) {
      EXPECT_EQ(seen.at(rank), str_cat("from ", rank));
      EXPECT_EQ(answers[rank], str_cat("answer to from ", rank));
    }
  }
}

TEST(RunRound, AnyBytes_ArriveAsTheyAre) {
  const std::string bytes{'\0', '-', '\xFF', '\n', '\0'};
  for (const std::string& message : {bytes, std::string()}) {
    run_ranks(2, [&](Exchange& exchange) {
      EXPECT_EQ(run_round(exchange, "step", [&] { return message; }, same_answers), message);
    });
  }
}

TEST(RunRound, LocalErrorOnOneRank_IsThrownOnAllAndCoordinateDoesNotRun) {
  const Strings errors = errors_of_ranks(3, [](Exchange& exchange) {
    run_round(
        exchange, "planning",
        [&]() -> std::string {
          HP_CHECK(exchange.rank() != 1, kOutOfRange, "row 7 is missing");
          return "";
        },
        [](Strings messages) {
          ADD_FAILURE() << "coordinate ran";
          return messages;
        });
  });
  EXPECT_EQ(errors, Strings(3, "OutOfRange: planning failed on rank 1: row 7 is missing"));
}

TEST(RunRound, LocalErrorsOnSeveralRanks_NameTheLowestAndCountTheOthers) {
  for (const auto& [first, more] : {std::pair<int64_t, std::string>{2, " (and on 1 other rank)"},
                                    std::pair<int64_t, std::string>{1, " (and on 2 other ranks)"}}) {
    const Strings errors = errors_of_ranks(4, [row = first](Exchange& exchange) {
      agree(exchange, "writing",
            [&] { HP_CHECK(exchange.rank() < row, kDataLoss, "disk ", exchange.rank(), " is full"); });
    });
    EXPECT_EQ(errors,
              Strings(4, str_cat("DataLoss: writing failed on rank ", first, ": disk ", first, " is full", more)));
  }
}

TEST(RunRound, ErrorOfCoordinate_IsThrownOnAllAsItIs) {
  const Strings errors = errors_of_ranks(3, [](Exchange& exchange) {
    run_round(
        exchange, "planning", [] { return std::string(); },
        [](const Strings&) -> Strings { raise(ErrorCode::kType, "ranks disagree"); });
  });
  EXPECT_EQ(errors, Strings(3, "Type: ranks disagree"));
}

TEST(RunRound, EveryErrorCode_IsCarried) {
  for (const ErrorCode code :
       {ErrorCode::kInvalidArgument, ErrorCode::kType, ErrorCode::kOutOfRange, ErrorCode::kUnimplemented,
        ErrorCode::kFailedPrecondition, ErrorCode::kDataLoss, ErrorCode::kInternal}) {
    EXPECT_EQ(errors_if_rank_1_does([&] { raise(code, "x"); }),
              Strings(3, str_cat(to_string(code), ": the step failed on rank 1: x")));
  }
}

TEST(RunRound, OtherExceptions_AreInternalAndOutOfMemoryIsAPrecondition) {
  EXPECT_EQ(errors_if_rank_1_does([] { throw std::runtime_error("odd"); }),
            Strings(3, "Internal: the step failed on rank 1: odd"));
  EXPECT_EQ(errors_if_rank_1_does([] { throw std::bad_alloc(); }),
            Strings(3, "FailedPrecondition: the step failed on rank 1: out of memory"));
  EXPECT_EQ(errors_if_rank_1_does([] { throw 7; }),
            Strings(3, "Internal: the step failed on rank 1: an exception that is no std::exception"));
}

TEST(RunRound, TooFewAnswers_AreAnErrorOnAllRanks) {
  for (const std::string& error : errors_of_ranks(2, [](Exchange& exchange) {
         run_round(exchange, "step", [] { return std::string(); }, [](const Strings&) { return Strings{"one"}; });
       })) {
    EXPECT_NE(error.find("Internal: internal error: answers.size() == size"), std::string::npos) << error;
  }
}

TEST(RunRound, RankThatNeverComes_IsTheExchangesOwnError) {
  ThreadJob job(2, std::chrono::milliseconds(50));
  const Strings errors = errors_of_ranks(job, [](Exchange& exchange) {
    if (exchange.rank() == 1) return;
    agree(exchange, "writing", [] {});
  });
  EXPECT_EQ(errors, (Strings{"FailedPrecondition: rank 1 did not come within 50 ms", ""}));
}

TEST(RunRound, ErrorOnTheOnlyRank_SaysWhatFailed) {
  SingleExchange alone;
  expect_error(ErrorCode::kInvalidArgument, "writing failed on rank 0: no",
               [&] { agree(alone, "writing", [] { raise(ErrorCode::kInvalidArgument, "no"); }); });
}

TEST(Announce, MessageOfTheCoordinator_ReachesAll) {
  for (const int64_t size : {1, 4}) {
    run_ranks(size, [](Exchange& exchange) {
      EXPECT_EQ(announce(exchange, "step",
                         [&] {
                           EXPECT_EQ(exchange.rank(), 0);
                           return std::string("news");
                         }),
                "news");
    });
  }
}

TEST(Announce, Error_IsThrownOnAllAsItIs) {
  EXPECT_EQ(errors_of_ranks(3,
                            [](Exchange& exchange) {
                              announce(exchange, "step", []() -> std::string { raise(ErrorCode::kDataLoss, "torn"); });
                            }),
            Strings(3, "DataLoss: torn"));
}

// What ranks throw that each do one of these at the same time.
Strings errors_of_steps(const std::vector<std::function<void(Exchange&)>>& steps) {
  return errors_of_ranks(static_cast<int64_t>(steps.size()),
                         [&](Exchange& exchange) { steps[static_cast<size_t>(exchange.rank())](exchange); });
}

std::function<void(Exchange&)> round_of(const std::string& step) {
  return [step](Exchange& exchange) { agree(exchange, step, [] {}); };
}

std::function<void(Exchange&)> failing_round_of(const std::string& step) {
  return [step](Exchange& exchange) { agree(exchange, step, [] { raise(ErrorCode::kDataLoss, "torn"); }); };
}

std::function<void(Exchange&)> announcement_of(const std::string& step) {
  return [step](Exchange& exchange) {
    announce(exchange, step, []() -> std::string {
      ADD_FAILURE() << "make ran";
      return "";
    });
  };
}

TEST(Rounds, RanksInDifferentSteps_AllThrowThatTheyAre) {
  const auto expected = [](size_t rank, const std::string& other, const std::string& first) {
    return str_cat("FailedPrecondition: rank ", rank, " is ", other, " while rank 0 is ", first,
                   "; every rank must make the same calls in the same order");
  };
  const auto save = round_of("planning the save");
  const auto load = round_of("planning the load");
  const auto reading = announcement_of("reading the metadata");
  EXPECT_EQ(errors_of_steps({save, load}), Strings(2, expected(1, "planning the load", "planning the save")));
  EXPECT_EQ(errors_of_steps({save, save, load}), Strings(3, expected(2, "planning the load", "planning the save")));
  EXPECT_EQ(errors_of_steps({reading, save}), Strings(2, expected(1, "planning the save", "reading the metadata")));
  EXPECT_EQ(errors_of_steps({save, reading}), Strings(2, expected(1, "reading the metadata", "planning the save")));
  EXPECT_EQ(errors_of_steps({failing_round_of("writing"), save}),
            Strings(2, expected(1, "planning the save", "writing")));
  const auto other = [](Exchange& exchange) {
    exchange.gather("hello");
    exchange.scatter({});
  };
  EXPECT_EQ(errors_of_steps({save, other}), (Strings{expected(1, "doing something else", "planning the save"), ""}));
}

TEST(Rounds, RanksInDifferentSteps_MayGoOnTogether) {
  EXPECT_EQ(errors_of_ranks(2,
                            [](Exchange& exchange) {
                              EXPECT_THROW(agree(exchange, exchange.rank() == 0 ? "a" : "b", [] {}), Error);
                              agree(exchange, "c", [] {});
                            }),
            Strings(2));
}

TEST(SingleExchange, TalksToItself) {
  SingleExchange alone;
  EXPECT_TRUE(alone.is_coordinator());
  EXPECT_EQ(alone.gather("a"), Strings{"a"});
  EXPECT_EQ(alone.scatter({"b"}), "b");
  EXPECT_EQ(alone.broadcast("c"), "c");
}

}  // namespace
}  // namespace hyper_parallel
