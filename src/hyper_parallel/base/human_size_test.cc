#include "hyper_parallel/base/human_size.h"

#include <gtest/gtest.h>

#include <limits>

namespace hyper_parallel {
namespace {

TEST(HumanSize, BelowOneKibibyte_IsPlainBytes) {
  EXPECT_EQ(human_size(0), "0 B");
  EXPECT_EQ(human_size(1023), "1023 B");
}

TEST(HumanSize, LargerCounts_UseTheLargestUnitTheyFill) {
  EXPECT_EQ(human_size(1024), "1.0 KiB");
  EXPECT_EQ(human_size(1536), "1.5 KiB");
  EXPECT_EQ(human_size(90868376), "86.7 MiB");
  EXPECT_EQ(human_size(int64_t{5} << 40), "5.0 TiB");
  EXPECT_EQ(human_size(std::numeric_limits<int64_t>::max()), "8.0 EiB");
}

TEST(HumanSize, CountThatRoundsUpToTheNextUnit_IsShownInThatUnit) {
  EXPECT_EQ(human_size(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(human_size(1023 * 1024 + 900), "1023.9 KiB");
}

}  // namespace
}  // namespace hyper_parallel
