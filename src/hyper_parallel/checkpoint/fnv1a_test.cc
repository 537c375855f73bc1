#include "hyper_parallel/checkpoint/fnv1a.h"

#include <gtest/gtest.h>

namespace hyper_parallel {
namespace {

// Vectors of the authors' test suite.
TEST(Fnv1a, PublishedVectors_Agree) {
  EXPECT_EQ(fnv1a_64(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(fnv1a_64("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(fnv1a_64("foobar"), 0x85944171f73967e8ULL);
}

TEST(Fnv1a, BytesOver127_AreNotSigned) {
  // (basis ^ 0xff) * prime mod 2^64, by hand.
  EXPECT_EQ(fnv1a_64("\xff"), (0xcbf29ce484222325ULL ^ 0xffULL) * 0x100000001b3ULL);
}

}  // namespace
}  // namespace hyper_parallel
