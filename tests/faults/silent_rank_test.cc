// A rank that neither answers nor dies.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <string>

#include "tests/faults/faulty_run.h"
#include "tests/faults/generation.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

using std::chrono::milliseconds;

TEST(SilentRank, StoppedInItsSave_RaisesOnTheOtherWithinTheLimit) {
  const TemporaryFolder folder;
  const std::filesystem::path directory = std::filesystem::canonical(folder.path()) / "checkpoint";
  SingleExchange alone;
  save_generation(alone, directory, 1);
  for (int64_t rank = 0; rank < 2; ++rank) {
    const auto begin = std::chrono::steady_clock::now();
    const std::array<RankEnd, 2> ends = run_saver(directory, 2, {rank, 2, "stop"}, milliseconds(1000));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
    EXPECT_EQ(ends[static_cast<size_t>(rank)].how, "killed");
    EXPECT_THAT(ends[static_cast<size_t>(1 - rank)].how,
                ::testing::HasSubstr("rank " + std::to_string(rank) + " did not answer within 1000 ms"));
    EXPECT_EQ(load_generation(directory), 1);
  }
}

}  // namespace
}  // namespace hyper_parallel
