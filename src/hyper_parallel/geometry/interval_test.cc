#include "hyper_parallel/geometry/interval.h"

#include <gtest/gtest.h>

#include <vector>

namespace hyper_parallel {
namespace {

std::vector<int64_t> sizes(int64_t n, int64_t parts, Interval (*cut)(Interval, int64_t, int64_t)) {
  std::vector<int64_t> result;
  for (int64_t index = 0; index < parts; ++index) result.push_back(cut({0, n}, parts, index).size());
  return result;
}

std::vector<int64_t> begins(int64_t n, int64_t parts) {
  std::vector<int64_t> result;
  for (int64_t index = 0; index < parts; ++index) result.push_back(chunk_of({0, n}, parts, index).begin);
  return result;
}

TEST(Interval, SizeAndEmptiness) {
  EXPECT_EQ((Interval{7, 53}).size(), 46);
  EXPECT_FALSE((Interval{7, 8}).empty());
  EXPECT_TRUE((Interval{7, 7}).empty());
  EXPECT_TRUE(Interval{}.empty());
}

TEST(Interval, Intersect_HoldsExactlyTheCommonCells) {
  for (int64_t a = 0; a <= 5; ++a) {
    for (int64_t b = a; b <= 5; ++b) {
      for (int64_t c = 0; c <= 5; ++c) {
        for (int64_t d = c; d <= 5; ++d) {
          const Interval both = intersect(Interval{a, b}, Interval{c, d});
          EXPECT_LE(both.begin, both.end);
          for (int64_t cell = 0; cell < 5; ++cell) {
            const bool in_both = cell >= a && cell < b && cell >= c && cell < d;
            EXPECT_EQ(cell >= both.begin && cell < both.end, in_both);
          }
        }
      }
    }
  }
}

TEST(ChunkOf, Case01_TenRowsOverFour) { EXPECT_EQ(sizes(10, 4, chunk_of), (std::vector<int64_t>{3, 3, 3, 1})); }

TEST(ChunkOf, Case02_FourteenColumnsOverFour) { EXPECT_EQ(sizes(14, 4, chunk_of), (std::vector<int64_t>{4, 4, 4, 2})); }

TEST(ChunkOf, Case05_EmptyChunks_LieAtTheEnd) {
  EXPECT_EQ(sizes(5, 4, chunk_of), (std::vector<int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(begins(5, 4), (std::vector<int64_t>{0, 2, 4, 5}));
  EXPECT_EQ(begins(2, 5), (std::vector<int64_t>{0, 1, 2, 2, 2}));
  EXPECT_EQ(begins(0, 3), (std::vector<int64_t>{0, 0, 0}));
}

TEST(ChunkOf, PartOfAPart_StaysInside) {
  EXPECT_EQ(chunk_of({10, 15}, 2, 0), (Interval{10, 13}));
  EXPECT_EQ(chunk_of({10, 15}, 2, 1), (Interval{13, 15}));
  EXPECT_EQ(chunk_of({13, 13}, 2, 1), (Interval{13, 13}));
}

TEST(EvenPartOf, SizesDifferByOneAtMostTheLongerFirst) {
  EXPECT_EQ(sizes(5, 4, even_part_of), (std::vector<int64_t>{2, 1, 1, 1}));
  EXPECT_EQ(sizes(10, 4, even_part_of), (std::vector<int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(sizes(2, 4, even_part_of), (std::vector<int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(sizes(0, 2, even_part_of), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(even_part_of({10, 15}, 2, 1), (Interval{13, 15}));
}

TEST(ChunkOfAndEvenPartOf, PartsTileTheWhole) {
  for (const auto cut : {chunk_of, even_part_of}) {
    for (int64_t n = 0; n <= 20; ++n) {
      for (int64_t parts = 1; parts <= 8; ++parts) {
        int64_t end = 100;
        for (int64_t index = 0; index < parts; ++index) {
          const Interval part = cut({100, 100 + n}, parts, index);
          EXPECT_EQ(part.begin, end) << n << " over " << parts << " at " << index;
          EXPECT_LE(part.begin, part.end);
          end = part.end;
        }
        EXPECT_EQ(end, 100 + n);
      }
    }
  }
}

TEST(ChunkOfAndEvenPartOf, LargestSize_DoesNotOverflow) {
  for (const auto cut : {chunk_of, even_part_of}) {
    for (const int64_t parts : {1, 2, 3, 1000, 100'000}) {
      EXPECT_EQ(cut({0, INT64_MAX}, parts, 0).begin, 0);
      EXPECT_EQ(cut({0, INT64_MAX}, parts, parts - 1).end, INT64_MAX) << parts;
    }
  }
}

}  // namespace
}  // namespace hyper_parallel
