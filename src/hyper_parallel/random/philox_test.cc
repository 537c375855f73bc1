#include "hyper_parallel/random/philox.h"

#include <gtest/gtest.h>

namespace hyper_parallel {
namespace {

// The known answers that the authors of Philox publish with it.

TEST(Philox, OfZeros_IsTheKnownAnswer) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, OfOnes_IsTheKnownAnswer) {
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, OfTheDigitsOfPi_IsTheKnownAnswer) {
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsKnownWhenCompiled) {
  static_assert(philox4x32_10({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5);
  static_assert(philox4x32_10({1, 0, 0, 0}, {0, 0}) != philox4x32_10({0, 1, 0, 0}, {0, 0}));
}

}  // namespace
}  // namespace hyper_parallel
