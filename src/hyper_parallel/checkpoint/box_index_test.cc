#include "hyper_parallel/checkpoint/box_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

namespace hyper_parallel {
namespace {

// The boxes of a grid over a tensor of `shape`, cut every `steps[d]` cells of dim d.
std::vector<Box> grid(const Dims& shape, const Dims& steps) {
  std::vector<Box> boxes = {{Dims(shape.size(), 0), shape}};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<Box> cut;
    for (const Box& box : boxes) {
      for (int64_t begin = 0; begin < shape[dim]; begin += steps[dim]) {
        Box part = box;
        part.offsets[dim] = begin;
        part.sizes[dim] = std::min(steps[dim], shape[dim] - begin);
        cut.push_back(part);
      }
    }
    boxes = std::move(cut);
  }
  return boxes;
}

BoxIndex index_of(const std::vector<Box>& boxes, size_t ndim) {
  return BoxIndex(ndim, static_cast<int64_t>(boxes.size()), [&](int64_t i) { return boxes[static_cast<size_t>(i)]; });
}

std::vector<int64_t> found(const BoxIndex& index, const Box& wanted) {
  std::vector<int64_t> numbers;
  index.for_each_overlap(wanted, [&](int64_t number) { numbers.push_back(number); });
  std::ranges::sort(numbers);
  return numbers;
}

// By asking each box.
std::vector<int64_t> expected(const std::vector<Box>& boxes, const Box& wanted) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (intersect(boxes[i], wanted)) numbers.push_back(static_cast<int64_t>(i));
  }
  return numbers;
}

TEST(BoxIndex, NoBoxes_FindNothing) { EXPECT_TRUE(found(index_of({}, 2), whole_box({3, 3})).empty()); }

TEST(BoxIndex, BoxOfRankZero_IsFound) { EXPECT_EQ(found(index_of({Box{}}, 0), Box{}), std::vector<int64_t>{0}); }

TEST(BoxIndex, RandomQueries_AgreeWithAskingEachBox) {
  std::mt19937_64 random(7);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (const auto& [shape, steps] : std::vector<std::pair<Dims, Dims>>{
           {{100}, {1}}, {{40, 40}, {3, 40}}, {{40, 40}, {40, 1}}, {{20, 30}, {2, 3}}, {{9, 8, 7}, {2, 2, 2}}}) {
    std::vector<Box> boxes = grid(shape, steps);
    std::shuffle(boxes.begin(), boxes.end(), random);
    const BoxIndex index = index_of(boxes, shape.size());
    for (int query = 0; query < 200; ++query) {
      Box wanted = whole_box(shape);
      for (size_t dim = 0; dim < shape.size(); ++dim) {
        wanted.offsets[dim] = draw(0, shape[dim] - 1);
        wanted.sizes[dim] = draw(1, shape[dim] - wanted.offsets[dim]);
      }
      EXPECT_EQ(found(index, wanted), expected(boxes, wanted)) << to_string(wanted);
    }
  }
}

// Columns and rows alike: each query looks at little more than it finds.
TEST(BoxIndex, ManyBoxesAndQueries_TakeNoQuadraticTime) {
  for (const Dims& steps : {Dims{1, 40'000}, Dims{40'000, 1}, Dims{200, 200}}) {
    const std::vector<Box> boxes = grid({40'000, 40'000}, steps);
    const auto start = std::chrono::steady_clock::now();
    const BoxIndex index = index_of(boxes, 2);
    int64_t results = 0;
    for (const Box& wanted : boxes) index.for_each_overlap(wanted, [&](int64_t) { ++results; });
    EXPECT_EQ(results, 40'000);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  }
}

}  // namespace
}  // namespace hyper_parallel
