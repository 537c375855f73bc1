#include "hyper_parallel/geometry/interval_boxes.h"

#include <gtest/gtest.h>

#include "tests/support/cells.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

/// "(0, 1, 2)+(1, 1, 3) 0:3": each box and its place within the interval.
std::vector<std::string> texts(const Dims& shape, Interval interval) {
  std::vector<std::string> result;
  for (const IntervalBox& part : interval_to_boxes(shape, interval)) {
    result.push_back(
        str_cat(to_string(part.box), " ", part.flat.begin - interval.begin, ":", part.flat.end - interval.begin));
  }
  return result;
}

using Texts = std::vector<std::string>;

/// The boxes laid end to end are the interval, cell by cell, and there are at most 2n - 1 of them.
void expect_exact_cover(const Dims& shape, Interval interval) {
  SCOPED_TRACE(str_cat(tuple_text(shape), " [", interval.begin, ", ", interval.end, ")"));
  const auto boxes = interval_to_boxes(shape, interval);
  EXPECT_LE(boxes.size(), shape.empty() ? 1 : 2 * shape.size() - 1);
  Cells laid_out;
  for (const IntervalBox& part : boxes) {
    EXPECT_EQ(part.flat.begin, interval.begin + static_cast<int64_t>(laid_out.size()));
    EXPECT_EQ(part.flat.size(), part.box.numel());
    EXPECT_GT(part.box.numel(), 0);
    const Cells cells = cells_of(part.box, shape);
    EXPECT_EQ(static_cast<int64_t>(cells.size()), part.box.numel()) << to_string(part.box) << " leaves the tensor";
    laid_out.insert(laid_out.end(), cells.begin(), cells.end());
  }
  Cells expected = all_cells(shape);
  expected = Cells(expected.begin() + interval.begin, expected.begin() + interval.end);
  EXPECT_EQ(laid_out, expected);
}

void expect_exact_cover_of_every_interval(const Dims& shape) {
  const auto numel = static_cast<int64_t>(all_cells(shape).size());
  for (int64_t begin = 0; begin <= numel; ++begin) {
    for (int64_t end = begin; end <= numel; ++end) expect_exact_cover(shape, {begin, end});
  }
}

TEST(IntervalToBoxes, Case38_FiveBoxesOf345) {
  EXPECT_EQ(texts({3, 4, 5}, {7, 53}),
            (Texts{"(0, 1, 2)+(1, 1, 3) 0:3", "(0, 2, 0)+(1, 2, 5) 3:13", "(1, 0, 0)+(1, 4, 5) 13:33",
                   "(2, 0, 0)+(1, 2, 5) 33:43", "(2, 2, 0)+(1, 1, 3) 43:46"}));
}

TEST(IntervalToBoxes, Case38_FourBoxesOf2345) {
  EXPECT_EQ(texts({2, 3, 4, 5}, {17, 103}),
            (Texts{"(0, 0, 3, 2)+(1, 1, 1, 3) 0:3", "(0, 1, 0, 0)+(1, 2, 4, 5) 3:43", "(1, 0, 0, 0)+(1, 2, 4, 5) 43:83",
                   "(1, 2, 0, 0)+(1, 1, 1, 3) 83:86"}));
}

TEST(IntervalToBoxes, Case38_RanksOf342WithUnits0312) {
  EXPECT_EQ(texts({3, 4, 2}, {0, 0}), Texts{});
  EXPECT_EQ(texts({3, 4, 2}, {0, 12}), (Texts{"(0, 0, 0)+(1, 4, 2) 0:8", "(1, 0, 0)+(1, 2, 2) 8:12"}));
  EXPECT_EQ(texts({3, 4, 2}, {12, 16}), (Texts{"(1, 2, 0)+(1, 2, 2) 0:4"}));
  EXPECT_EQ(texts({3, 4, 2}, {16, 24}), (Texts{"(2, 0, 0)+(1, 4, 2) 0:8"}));
}

TEST(IntervalToBoxes, Case38_AlignedRunsOf648_AreOneBoxEach) {
  EXPECT_EQ(texts({6, 4, 8}, {0, 64}), (Texts{"(0, 0, 0)+(2, 4, 8) 0:64"}));
  EXPECT_EQ(texts({6, 4, 8}, {64, 192}), (Texts{"(2, 0, 0)+(4, 4, 8) 0:128"}));
}

TEST(IntervalToBoxes, Case38_EveryIntervalOfEverySmallShape_IsCoveredExactly) {
  expect_exact_cover_of_every_interval({});
  for (int64_t i = 0; i <= 4; ++i) {
    expect_exact_cover_of_every_interval({i});
    for (int64_t j = 0; j <= 4; ++j) {
      expect_exact_cover_of_every_interval({i, j});
      for (int64_t k = 0; k <= 4; ++k) expect_exact_cover_of_every_interval({i, j, k});
    }
  }
}

TEST(IntervalToBoxes, EveryIntervalOfFourDims_IsCoveredExactly) {
  expect_exact_cover_of_every_interval({2, 3, 2, 3});
  expect_exact_cover_of_every_interval({1, 3, 1, 4});
  expect_exact_cover_of_every_interval({2, 1, 1, 3, 1, 2, 2});
}

TEST(IntervalToBoxes, CutInsideARowOfAModelsTensor) {
  EXPECT_EQ(texts({128, 129, 3}, {0, 16512}),
            (Texts{"(0, 0, 0)+(42, 129, 3) 0:16254", "(42, 0, 0)+(1, 86, 3) 16254:16512"}));
  EXPECT_EQ(texts({128, 129, 3}, {16512, 49536}),
            (Texts{"(42, 86, 0)+(1, 43, 3) 0:129", "(43, 0, 0)+(85, 129, 3) 129:33024"}));
}

TEST(IntervalToBoxes, ZeroDimTensor_IsOneBoxOfRankZero) {
  EXPECT_EQ(texts({}, {0, 1}), Texts{"()+() 0:1"});
  EXPECT_EQ(texts({}, {0, 0}), Texts{});
  EXPECT_EQ(texts({}, {1, 1}), Texts{});
}

TEST(IntervalToBoxes, EmptyTensor_HasNoBoxes) {
  EXPECT_EQ(texts({0}, {0, 0}), Texts{});
  EXPECT_EQ(texts({2, 0, 3}, {0, 0}), Texts{});
  EXPECT_EQ(texts({0, int64_t{1} << 62, 4}, {0, 0}), Texts{});
}

TEST(IntervalToBoxes, LargestTensor_DoesNotOverflow) {
  const int64_t rows = INT64_MAX / 7;  // 2^63 - 1 is a multiple of 7
  EXPECT_EQ(texts({rows, 7}, {1, INT64_MAX - 1}),
            (Texts{"(0, 1)+(1, 6) 0:6", "(1, 0)+(1317624576693539399, 7) 6:9223372036854775799",
                   "(1317624576693539400, 0)+(1, 6) 9223372036854775799:9223372036854775805"}));
}

TEST(IntervalToBoxes, IntervalThatLeavesTheTensor_Raises) {
  const auto error = [](const Dims& shape, Interval interval) {
    return error_of([&] { interval_to_boxes(shape, interval); });
  };
  EXPECT_EQ(error({3, 4}, {-1, 5}), "OutOfRange: interval [-1, 5) leaves the 12 cells of shape (3, 4)");
  EXPECT_EQ(error({3, 4}, {0, 13}), "OutOfRange: interval [0, 13) leaves the 12 cells of shape (3, 4)");
  EXPECT_EQ(error({3, 4}, {13, 13}), "OutOfRange: interval [13, 13) leaves the 12 cells of shape (3, 4)");
  EXPECT_EQ(error({}, {0, 2}), "OutOfRange: interval [0, 2) leaves the 1 cells of shape ()");
  EXPECT_EQ(error({2, 0}, {0, 1}), "OutOfRange: interval [0, 1) leaves the 0 cells of shape (2, 0)");
}

TEST(IntervalToBoxes, IntervalThatRunsBackwards_Raises) {
  EXPECT_EQ(error_of([] { interval_to_boxes({3, 4}, {5, 4}); }),
            "OutOfRange: interval [5, 4) leaves the 12 cells of shape (3, 4)");
}

TEST(IntervalToBoxes, ShapeBeyondInt64_Raises) {
  EXPECT_EQ(error_of([] { interval_to_boxes({int64_t{1} << 62, 4}, {0, 1}); }),
            "InvalidArgument: 4611686018427387904 * 4 does not fit in int64");
}

}  // namespace
}  // namespace hyper_parallel
