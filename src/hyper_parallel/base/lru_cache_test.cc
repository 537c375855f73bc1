#include "hyper_parallel/base/lru_cache.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace hyper_parallel {
namespace {

using Cache = LruCache<int, std::string>;

TEST(LruCache_Get, SecondCall_GetsTheSameObjectAndMakesNothing) {
  Cache cache(2);
  int made = 0;
  const auto make = [&] { return std::to_string(++made); };
  const auto first = cache.get(7, make);
  EXPECT_EQ(cache.get(7, make), first);
  EXPECT_EQ(*first, "1");
  EXPECT_EQ(cache.hits(), 1);
  EXPECT_EQ(cache.misses(), 1);
}

TEST(LruCache_Capacity, LeastRecentlyUsed_GoesFirst) {
  Cache cache(2);
  const auto get = [&](int key) { return *cache.get(key, [&] { return std::to_string(key); }); };
  get(1);
  get(2);
  get(1);  // 2 is now the older one
  get(3);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(get(1), "1");
  EXPECT_EQ(cache.misses(), 3);
  EXPECT_EQ(get(2), "2");
  EXPECT_EQ(cache.misses(), 4);
}

TEST(LruCache_Capacity, Zero_MakesEveryValueAnew) {
  Cache cache(0);
  int made = 0;
  for (int call = 0; call < 2; ++call) cache.get(1, [&] { return std::to_string(++made); });
  EXPECT_EQ(made, 2);
  EXPECT_EQ(cache.size(), 0u);
}

TEST(LruCache_Error, WhatMakeThrows_PassesAndNothingIsKept) {
  Cache cache(2);
  EXPECT_THROW(cache.get(1, []() -> std::string { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(*cache.get(1, [] { return std::string("yes"); }), "yes");
}

TEST(LruCache_Get, AValueThatWentOut_LivesAsLongAsItIsHeld) {
  Cache cache(1);
  const auto held = cache.get(1, [] { return std::string("one"); });
  cache.get(2, [] { return std::string("two"); });
  EXPECT_EQ(*held, "one");
}

TEST(LruCache_Threads, ConcurrentCalls_AllGetTheRightValue) {
  Cache cache(3);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) {
        const int key = i % 5;
        if (*cache.get(key, [&] { return std::to_string(key); }) != std::to_string(key)) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_EQ(cache.hits() + cache.misses(), 4000);
  EXPECT_LE(cache.size(), 3u);
}

}  // namespace
}  // namespace hyper_parallel
