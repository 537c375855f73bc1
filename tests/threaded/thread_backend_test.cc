#include "tests/threaded/thread_backend.h"

#include <stdexcept>

#include "tests/threaded/both_paths.h"

namespace hyper_parallel::test {
namespace {

constexpr std::chrono::milliseconds kShort{200};

/// The text of the exception, "" for none.
std::string text_of(const std::exception_ptr& thrown) {
  if (!thrown) return "";
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(ThreadBackend, Name_IsTheOneAskedFor) {
  run_ranks(2, [](const ThreadRank& self) {
    EXPECT_EQ(self.group->getBackend(at::kCPU)->getBackendName(), "threaded");
    EXPECT_EQ(self.group->getRank(), self.rank);
    EXPECT_EQ(self.group->getSize(), 2);
  });
  run_ranks(1, [](const ThreadRank& self) { EXPECT_EQ(self.group->getBackendName(), "gloo"); },
            {.backend_name = "gloo"});
}

TEST(ThreadBackend, Collectives_MoveTheData) {
  run_ranks(3, [](const ThreadRank& self) {
    std::vector<at::Tensor> one{floats({static_cast<float>(self.rank)})};
    self.group->broadcast(one, {.rootRank = 2})->wait();
    expect_equal(one[0], floats({2}));

    std::vector<at::Tensor> term{floats({static_cast<float>(self.rank + 1)})};
    self.group->allreduce(term)->wait();
    expect_equal(term[0], floats({6}));

    at::Tensor gathered = at::zeros({3});
    at::Tensor own = floats({static_cast<float>(self.rank)});
    self.group->all_gather_single(gathered, own)->wait();
    expect_equal(gathered, floats({0, 1, 2}));
  });
}

TEST(ThreadBackend, RankThatNeverComes_MakesACollectiveTimeOut) {
  const auto thrown = run_ranks_collecting(3,
                                           [](const ThreadRank& self) {
                                             if (self.rank != 1) self.group->barrier()->wait();
                                           },
                                           {.timeout = kShort});
  EXPECT_EQ(text_of(thrown[0]), "barrier: 2 of 3 ranks came within 200 ms");
  EXPECT_EQ(text_of(thrown[1]), "");
  EXPECT_EQ(text_of(thrown[2]), "barrier: 2 of 3 ranks came within 200 ms");
}

TEST(ThreadBackend, UnlikeCollectives_RaiseOnBothSides) {
  const auto thrown = run_ranks_collecting(2, [](const ThreadRank& self) {
    std::vector<at::Tensor> tensors{at::zeros({1})};
    if (self.rank == 0) {
      self.group->allreduce(tensors)->wait();
    } else {
      self.group->broadcast(tensors)->wait();
    }
  });
  EXPECT_NE(text_of(thrown[0]).find("the ranks disagree"), std::string::npos);
  EXPECT_NE(text_of(thrown[1]).find("the ranks disagree"), std::string::npos);
}

TEST(ThreadBackend, MessageUnlikeItsBuffer_RaisesOnBothSides) {
  const auto thrown = run_ranks_collecting(2, [](const ThreadRank& self) {
    std::vector<at::Tensor> tensors{at::zeros({self.rank + 1})};
    if (self.rank == 0) {
      self.group->send(tensors, 1, 7)->wait();
    } else {
      self.group->recv(tensors, 0, 7)->wait();
    }
  });
  EXPECT_EQ(text_of(thrown[0]), "rank 0 send to rank 1: a message of 4 bytes met a buffer of 8");
  EXPECT_EQ(text_of(thrown[1]), "rank 1 receive from rank 0: a message of 4 bytes met a buffer of 8");
}

TEST(ThreadBackend, Subgroup_HasItsOwnRanks) {
  run_ranks(3, [](const ThreadRank& self) {
    if (self.rank == 0) return;
    const GroupPtr group = self.subgroup({2, 1});
    EXPECT_EQ(group->getRank(), self.rank == 2 ? 0 : 1);
    at::Tensor gathered = at::zeros({2});
    at::Tensor own = floats({static_cast<float>(self.rank)});
    group->all_gather_single(gathered, own)->wait();
    expect_equal(gathered, floats({2, 1}));
    EXPECT_NE(self.subgroup({2, 1}).get(), group.get());
  });
}

TEST(RunRanks, Exceptions_AreReportedPerRank) {
  const auto fails = [](const ThreadRank& self) {
    HP_CHECK(self.rank != 1, kOutOfRange, "first");
    if (self.rank == 2) throw std::runtime_error("second");
  };
  const auto thrown = run_ranks_collecting(3, fails);
  EXPECT_EQ(text_of(thrown[0]), "");
  EXPECT_EQ(text_of(thrown[1]), "first");
  EXPECT_EQ(text_of(thrown[2]), "second");
  EXPECT_EQ(error_of([&] { run_ranks(3, fails); }), "OutOfRange: rank 1: first\nrank 2: second");
}

}  // namespace
}  // namespace hyper_parallel::test
