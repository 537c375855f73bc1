#include "hyper_parallel/checkpoint/random_word.h"

#include <gtest/gtest.h>

#include <set>

namespace hyper_parallel {
namespace {

TEST(RandomWord, ManyCalls_AllDiffer) {
  std::set<uint64_t> words;
  for (int i = 0; i < 1000; ++i) words.insert(random_word());
  EXPECT_EQ(words.size(), 1000U);  // a repetition has a chance of 3e-14
}

}  // namespace
}  // namespace hyper_parallel
