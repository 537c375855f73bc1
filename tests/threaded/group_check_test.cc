#include "hyper_parallel/torch/group_check.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/threaded/both_paths.h"

namespace hyper_parallel::test {
namespace {

std::vector<std::string> errors(int size, const std::function<void(const ThreadRank&)>& fails,
                                std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
  std::vector<std::string> texts(static_cast<size_t>(size));
  run_ranks(size,
            [&](const ThreadRank& self) { texts[static_cast<size_t>(self.rank)] = error_of([&] { fails(self); }); },
            {.timeout = timeout});
  return texts;
}

TEST(CheckEnabled, FollowsTheEnvironmentVariable) {
  {
    const ScopedCheckSetting on(CheckSetting::kOn);
    EXPECT_TRUE(check_enabled());
    {
      const ScopedCheckSetting off(CheckSetting::kOff);
      EXPECT_FALSE(check_enabled());
    }
    EXPECT_TRUE(check_enabled());
  }
  const ScopedCheckSetting restores_at_the_end(CheckSetting::kOff);
  unsetenv("HYPER_PARALLEL_CHECK");
  EXPECT_FALSE(check_enabled());
  setenv("HYPER_PARALLEL_CHECK", "", 1);
  EXPECT_FALSE(check_enabled());
  setenv("HYPER_PARALLEL_CHECK", "yes", 1);
  EXPECT_EQ(error_of([] { check_enabled(); }), "InvalidArgument: HYPER_PARALLEL_CHECK is 'yes' but must be 0 or 1");
}

TEST(GroupTimeout, IsTheBackends) {
  run_ranks(1, [](const ThreadRank& self) { EXPECT_EQ(group_timeout(*self.group), std::chrono::milliseconds(1234)); },
            {.timeout = std::chrono::milliseconds(1234)});
}

TEST(Agree, EqualDigests_PassAndDetailsGoToAll) {
  run_ranks(3, [](const ThreadRank& self) {
    const auto details = agree(*self.group, "gather", {"same", str_cat("from ", self.rank)});
    EXPECT_EQ(details, (std::vector<std::string>{"from 0", "from 1", "from 2"}));
  });
}

TEST(Agree, UnlikeDigests_RaiseOneTextThatNamesBothSides) {
  const auto texts =
      errors(3, [](const ThreadRank& self) { agree(*self.group, "gather", self.rank == 1 ? "b" : "a"); });
  for (const std::string& text : texts) {
    EXPECT_EQ(
        text,
        "FailedPrecondition: gather: the ranks of the group disagree about its arguments: rank 0, 2: a; rank 1: b");
  }
}

TEST(Agree, UnlikeOperations_RaiseOnAllRanks) {
  const auto texts =
      errors(2, [](const ThreadRank& self) { agree(*self.group, self.rank == 0 ? "gather" : "scatter", "same"); });
  const std::string rest = ": the ranks of the group disagree about the operation: rank 0: gather; rank 1: scatter";
  EXPECT_EQ(texts[0], "FailedPrecondition: gather" + rest);
  EXPECT_EQ(texts[1], "FailedPrecondition: scatter" + rest);
}

TEST(Agree, FaultOfOneRank_RaisesOnTheOthers) {
  const auto texts = errors(3, [](const ThreadRank& self) {
    const bool faulty = self.rank == 2;
    agree(*self.group, "gather", "same", faulty ? std::optional<std::string>("wrong size") : std::nullopt);
  });
  EXPECT_EQ(texts[0], "FailedPrecondition: gather: refused on another rank: rank 2: wrong size");
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], "no error");
}

TEST(Agree, TextsThatLookAlikeWhenJoined_AreToldApart) {
  const auto texts = errors(2, [](const ThreadRank& self) {
    agree(*self.group, "op", self.rank == 0 ? RankReport{"1:a", "b"} : RankReport{"1:a1", ":b"});
  });
  EXPECT_EQ(texts[0],
            "FailedPrecondition: op: the ranks of the group disagree about its arguments: rank 0: 1:a; rank 1: 1:a1");
}

TEST(Agree, RankThatNeverComes_IsNamedAfterTheTimeout) {
  const auto texts = errors(
      3,
      [](const ThreadRank& self) {
        if (self.rank != 1) agree(*self.group, "gather", "same");
      },
      std::chrono::milliseconds(200));
  EXPECT_EQ(texts[0], "FailedPrecondition: gather: rank 1 of 3 did not come within 200 ms");
  EXPECT_EQ(texts[2], texts[0]);
}

TEST(Agree, AfterAnError_TheNextRoundStillMatches) {
  run_ranks(2, [](const ThreadRank& self) {
    EXPECT_NE(error_of([&] { agree(*self.group, "gather", str_cat(self.rank)); }), "no error");
    EXPECT_EQ(error_of([&] { agree(*self.group, "gather", "same"); }), "no error");
  });
}

TEST(Agree, SomeMembers_CompareAmongThemselves) {
  run_ranks(3, [](const ThreadRank& self) {
    if (self.rank == 1) return;
    agree(Participants(*self.group, {2, 0}), "gather", "same");
    EXPECT_EQ(error_of([&] { agree(Participants(*self.group, {2, 0}), "gather", str_cat("from ", self.rank)); }),
              "FailedPrecondition: gather: the ranks of the group disagree about its arguments: rank 0: from 0; "
              "rank 2: from 2");
  });
}

TEST(Agree, ManyRounds_TheStoreStaysSmall) {
  run_ranks(2, [](const ThreadRank& self) {
    for (int round = 0; round < 50; ++round) agree(*self.group, "gather", "same");
    self.group->barrier()->wait();
    // Per rank its counter and its last two texts.
    EXPECT_LE(self.group->getStore()->getNumKeys(), 6);
  });
}

TEST(Agree, GroupWithoutStore_IsRefused) {
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::intrusive_ptr<c10d::Store>(), 0, 1);
  EXPECT_EQ(error_of([&] { agree(*group, "gather", "same"); }),
            "FailedPrecondition: gather: HYPER_PARALLEL_CHECK=1 needs a process group with a store");
}

TEST(ValidateTogether, CheckOff_RaisesOnTheFaultyRankAloneAndReportsNothing) {
  const ScopedCheckSetting off(CheckSetting::kOff);
  const auto texts = errors(2, [](const ThreadRank& self) {
    const auto report = []() -> RankReport { throw std::logic_error("not needed"); };
    validate_together(*self.group, "gather", [&] { HP_CHECK(self.rank == 0, kInvalidArgument, "bad"); }, report);
  });
  EXPECT_EQ(texts[0], "no error");
  EXPECT_EQ(texts[1], "InvalidArgument: bad");
}

TEST(ValidateTogether, CheckOn_RaisesOnAllRanksTheFaultyOneItsOwnError) {
  const ScopedCheckSetting on(CheckSetting::kOn);
  const auto texts = errors(2, [](const ThreadRank& self) {
    validate_together(
        *self.group, "gather", [&] { HP_CHECK(self.rank == 0, kOutOfRange, "bad"); }, [] { return RankReport{}; });
  });
  EXPECT_EQ(texts[0], "FailedPrecondition: gather: refused on another rank: rank 1: bad");
  EXPECT_EQ(texts[1], "OutOfRange: bad");
}

}  // namespace
}  // namespace hyper_parallel::test
