#include "hyper_parallel/geometry/view_cursor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/cells.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

// All bytes in order, taken in steps of at most `step`.
std::vector<int64_t> walk(const ByteView& view, int64_t step) {
  std::vector<int64_t> bytes;
  for (ViewCursor cursor(view); !cursor.done();) {
    const int64_t count = std::min(step, cursor.run());
    for (int64_t i = 0; i < count; ++i) bytes.push_back(cursor.position() + i);
    cursor.advance(count);
  }
  return bytes;
}

std::vector<int64_t> bytes_of_elements(const StridedView& view, int64_t width) {
  std::vector<int64_t> bytes;
  for (const int64_t element : elements_of(view)) {
    for (int64_t i = 0; i < width; ++i) bytes.push_back(element * width + i);
  }
  return bytes;
}

TEST(ViewCursor, AnyView_IsWalkedInRowMajorOrder) {
  const std::vector<StridedView> views{run_view(3, 1),
                                       run_view(0, 7),
                                       {5, {2, 3}, {10, 1}},
                                       {5, {2, 3}, {1, 4}},
                                       {1, {2, 3, 2}, {40, 8, 2}},
                                       {1, {3, 2, 4}, {40, 8, 1}},
                                       {0, {2, 2}, {2, 1}},
                                       {7, {1, 3, 1}, {9, 2, 1}},
                                       {9, {4}, {-2}}};
  for (const StridedView& view : views) {
    for (const int64_t width : {1, 2, 8}) {
      for (const int64_t step : {1, 3, 1000}) {
        EXPECT_EQ(walk(byte_view(view, width * 8), step), bytes_of_elements(view, width))
            << to_string(view) << " " << width << " " << step;
      }
    }
  }
}

TEST(ByteView, Hull_HoldsFirstAndLastByte) {
  EXPECT_EQ(byte_view(run_view(3, 4), 16).hull(), (Interval{6, 14}));
  EXPECT_EQ(byte_view({5, {2, 3}, {10, 1}}, 8).hull(), (Interval{5, 18}));
  EXPECT_EQ(byte_view({9, {4}, {-2}}, 8).hull(), (Interval{3, 10}));
}

TEST(ByteView, DimsThatContinueOneAnother_AreOneRun) { EXPECT_EQ(byte_view({4, {2, 3}, {3, 1}}, 32).run, 24); }

TEST(ByteView, SubByteElements_AreCutBetweenBytesOnly) {
  EXPECT_EQ(byte_view(run_view(2, 4), 4).hull(), (Interval{1, 3}));
  expect_error(ErrorCode::kUnimplemented, "view [1:5] of elements of 4 bits begins or ends inside a byte",
               [] { byte_view(run_view(1, 4), 4); });
  expect_error(ErrorCode::kUnimplemented, "view [0:3] of elements of 4 bits", [] { byte_view(run_view(0, 3), 4); });
}

TEST(ByteView, ViewWithoutCellsOrTooLarge_IsRefused) {
  expect_error(ErrorCode::kInvalidArgument, "must have as many strides as sizes, and cells",
               [] { byte_view({0, {0}, {1}}, 8); });
  expect_error(ErrorCode::kInvalidArgument, "must have as many strides as sizes", [] { byte_view({0, {2}, {}}, 8); });
  expect_error(ErrorCode::kInvalidArgument, "does not fit in int64",
               [] { byte_view({int64_t{1} << 61, {2}, {1}}, 64); });
  expect_error(ErrorCode::kInvalidArgument, "does not fit in int64",
               [] { byte_view({0, {3}, {int64_t{1} << 62}}, 8).hull(); });
}

}  // namespace
}  // namespace hyper_parallel
