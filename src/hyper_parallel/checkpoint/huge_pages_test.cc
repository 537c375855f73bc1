#include "hyper_parallel/checkpoint/huge_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace hyper_parallel {
namespace {

TEST(HugePages, Wish_ChangesNoValue_WhereverTheBytesLie) {
  std::vector<std::byte> memory(static_cast<size_t>(3 * kHugePageBytes), std::byte{7});
  for (const size_t begin : {size_t{0}, size_t{1}, size_t{4097}}) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{5000}, static_cast<size_t>(kHugePageBytes / 2),
                              static_cast<size_t>(2 * kHugePageBytes)}) {
      prefer_huge_pages(std::span(memory).subspan(begin, size));
    }
  }
  prefer_huge_pages({});
  EXPECT_TRUE(std::ranges::all_of(memory, [](std::byte byte) { return byte == std::byte{7}; }));
}

}  // namespace
}  // namespace hyper_parallel
