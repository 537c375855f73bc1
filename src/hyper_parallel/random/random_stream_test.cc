#include "hyper_parallel/random/random_stream.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace hyper_parallel {
namespace {

using Ranks = std::vector<int64_t>;

TEST(RandomStream, WordsOfBlock_CountBlocksAndCallsApart) {
  const RandomStream stream{.key = 0x0000000200000001, .number = 0x0000000400000003};
  EXPECT_EQ(words_of_block(stream, 0x0000000600000005), philox4x32_10({5, 6, 3, 4}, {1, 2}));
}

TEST(MixedKey, EqualArguments_GiveEqualKeys) {
  EXPECT_EQ(mixed_key(7, Ranks{0, 1, 2}), mixed_key(7, Ranks{0, 1, 2}));
  // Pinned: a program that gives its seed draws the same numbers under every version of the library.
  EXPECT_EQ(mixed_key(0, Ranks{0}), 0x44e5b98100c67fb0ULL);
  EXPECT_EQ(mixed_key(42, Ranks{0, 1, 2, 3}), 0x49b17d07508d023aULL);
}

TEST(MixedKey, UnlikeSeedsAndRankLists_GiveUnlikeKeys) {
  std::set<uint64_t> keys;
  size_t count = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (const Ranks& ranks : {Ranks{}, {0}, {1}, {0, 1}, {1, 0}, {2, 3}, {0, 0}, {0, 1, 2, 3}, {50}}) {
      keys.insert(mixed_key(seed, ranks));
      ++count;
    }
  }
  EXPECT_EQ(keys.size(), count);
}

}  // namespace
}  // namespace hyper_parallel
