#include "hyper_parallel/placement/one_holder.h"

#include <gtest/gtest.h>

#include <vector>

namespace hyper_parallel {
namespace {

TEST(OneHolder, TheOwnerHasTheOnlyUnit_WhereverItStands) {
  EXPECT_EQ(one_holder(0, 1), RaggedShard({0}, {1}));
  EXPECT_EQ(one_holder(0, 3), RaggedShard({0}, {1, 0, 0}));
  EXPECT_EQ(one_holder(2, 3), RaggedShard({0}, {0, 0, 1}));
}

}  // namespace
}  // namespace hyper_parallel
