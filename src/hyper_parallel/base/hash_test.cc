#include "hyper_parallel/base/hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace hyper_parallel {
namespace {

size_t hash_of(const std::vector<int64_t>& items) {
  size_t seed = 0;
  hash_combine_range(seed, items);
  return seed;
}

TEST(HashCombine, EqualValuesInEqualOrder_GiveEqualHashes) {
  size_t first = 1;
  size_t second = 1;
  for (size_t* seed : {&first, &second}) {
    hash_combine(*seed, std::string("dp"));
    hash_combine(*seed, int64_t{7});
  }
  EXPECT_EQ(first, second);
}

TEST(HashCombine, OrderMatters) { EXPECT_NE(hash_of({1, 2}), hash_of({2, 1})); }

TEST(HashCombineRange, LengthMatters_SoThatNeighbouringListsDoNotRunTogether) {
  size_t left_heavy = 0;
  hash_combine_range(left_heavy, std::vector<int64_t>{1, 2});
  hash_combine_range(left_heavy, std::vector<int64_t>{3});
  size_t right_heavy = 0;
  hash_combine_range(right_heavy, std::vector<int64_t>{1});
  hash_combine_range(right_heavy, std::vector<int64_t>{2, 3});
  EXPECT_NE(left_heavy, right_heavy);
  EXPECT_NE(hash_of({}), hash_of({0}));
}

TEST(HashCombineRange, SmallUnitLists_DoNotCollide) {
  std::set<size_t> hashes;
  for (int64_t a = 0; a < 16; ++a) {
    for (int64_t b = 0; b < 16; ++b) {
      for (int64_t c = 0; c < 16; ++c) hashes.insert(hash_of({a, b, c}));
    }
  }
  EXPECT_EQ(hashes.size(), 16u * 16u * 16u);
}

}  // namespace
}  // namespace hyper_parallel
