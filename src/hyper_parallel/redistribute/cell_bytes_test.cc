#include "hyper_parallel/redistribute/cell_bytes.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/support/cells.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int64_t kCells = 120;

/// Byte b is b % 251, so that neighbours differ and no element repeats soon.
Bytes counted(int64_t bytes) {
  Bytes values;
  for (int64_t byte = 0; byte < bytes; ++byte) values.push_back(static_cast<std::byte>(byte % 251));
  return values;
}

/// The bytes of the elements, one element after the other.
Bytes bytes_of(const Bytes& buffer, const std::vector<int64_t>& elements, int64_t width) {
  Bytes bytes;
  for (const int64_t element : elements) {
    const auto begin = buffer.begin() + element * width;
    bytes.insert(bytes.end(), begin, begin + width);
  }
  return bytes;
}

/// Runs, rows, columns, single cells, in up to three dims.
std::vector<StridedView> some_views() {
  return {run_view(3, 1),
          run_view(0, 7),
          {5, {2, 3}, {10, 1}},
          {5, {2, 3}, {1, 4}},
          {2, {12}, {9}},
          {1, {2, 3, 2}, {40, 8, 2}},
          {1, {2, 3, 4}, {40, 8, 1}},
          {119, {12}, {-3}}};
}

TEST(PackCells, AnyViewAndWidth_PutsTheCellsEndToEnd) {
  for (const int64_t width : {1, 2, 3, 4, 8, 16, 24}) {
    const Bytes buffer = counted(kCells * width);
    for (const StridedView& view : some_views()) {
      Bytes message(static_cast<size_t>(view.numel() * width));
      pack_cells(std::vector{view}, width, buffer, message);
      EXPECT_EQ(message, bytes_of(buffer, elements_of(view), width)) << to_string(view) << " " << width;
    }
  }
}

TEST(UnpackCells, AnyViewAndWidth_WritesTheCellsAndNothingElse) {
  for (const int64_t width : {1, 2, 3, 4, 8, 16, 24}) {
    for (const StridedView& view : some_views()) {
      const Bytes message = counted(view.numel() * width);
      const Bytes before(static_cast<size_t>(kCells * width), std::byte{255});
      Bytes expected = before;
      int64_t next = 0;
      for (const int64_t element : elements_of(view)) {
        std::copy_n(message.begin() + next, width, expected.begin() + element * width);
        next += width;
      }
      Bytes buffer = before;
      unpack_cells(std::vector{view}, width, message, buffer);
      EXPECT_EQ(buffer, expected) << to_string(view) << " " << width;
    }
  }
}

TEST(PackCells, SeveralViews_LieOneBehindTheOther) {
  const Bytes buffer = counted(kCells * 2);
  const std::vector<StridedView> views{{5, {2, 3}, {10, 1}}, run_view(40, 4), {0, {3}, {7}}};
  std::vector<int64_t> elements;
  for (const StridedView& view : views) {
    for (const int64_t element : elements_of(view)) elements.push_back(element);
  }
  Bytes message(elements.size() * 2);
  pack_cells(views, 2, buffer, message);
  EXPECT_EQ(message, bytes_of(buffer, elements, 2));
  Bytes back(buffer.size());
  unpack_cells(views, 2, message, back);
  EXPECT_EQ(bytes_of(back, elements, 2), message);
}

TEST(CopyCells, BetweenViewsOfOtherShapes_KeepsTheRowMajorOrder) {
  const std::vector<StridedView> views{
      run_view(7, 24), {3, {12, 2}, {5, 1}}, {0, {24}, {4}}, {2, {3, 8}, {30, 1}}, {1, {2, 3, 4}, {50, 8, 2}}};
  for (const int64_t width : {1, 4, 6}) {
    const Bytes from = counted(kCells * width);
    for (const StridedView& source : views) {
      for (const StridedView& target : views) {
        Bytes to(from.size());
        copy_cells(source, from, target, to, width);
        EXPECT_EQ(bytes_of(to, elements_of(target), width), bytes_of(from, elements_of(source), width))
            << to_string(source) << " " << to_string(target) << " " << width;
      }
    }
  }
}

TEST(PackCells, NoView_IsAnEmptyMessage) {
  Bytes nothing;
  EXPECT_EQ(error_of([&] { pack_cells({}, 4, nothing, nothing); }), "no error");
  EXPECT_EQ(error_of([&] { unpack_cells({}, 4, nothing, nothing); }), "no error");
}

/// What packing, then unpacking `view` says; neither may write.
std::string refusal(const StridedView& view, int64_t width, size_t buffer_bytes, size_t message_bytes) {
  Bytes buffer(buffer_bytes, std::byte{1});
  Bytes message(message_bytes, std::byte{2});
  const std::string packing = error_of([&] { pack_cells(std::vector{view}, width, buffer, message); });
  EXPECT_EQ(error_of([&] { unpack_cells(std::vector{view}, width, message, buffer); }), packing);
  EXPECT_EQ(message, Bytes(message_bytes, std::byte{2}));
  EXPECT_EQ(buffer, Bytes(buffer_bytes, std::byte{1}));
  return packing;
}

TEST(PackCells, ViewThatLeavesItsBuffer_IsRefused) {
  EXPECT_EQ(refusal(run_view(3, 3), 4, 20, 12),
            "InvalidArgument: view [3:6] of elements of 4 bytes leaves its buffer of 20 bytes");
  EXPECT_EQ(refusal({0, {2, 3}, {10, 1}}, 2, 25, 12),
            "InvalidArgument: view 0+(2, 3)*(10, 1) of elements of 2 bytes leaves its buffer of 25 bytes");
  EXPECT_EQ(refusal(run_view(-1, 2), 1, 8, 2),
            "InvalidArgument: view [-1:1] of elements of 1 bytes leaves its buffer of 8 bytes");
  EXPECT_EQ(refusal({3, {3}, {-2}}, 1, 8, 3),
            "InvalidArgument: view 3+(3,)*(-2,) of elements of 1 bytes leaves its buffer of 8 bytes");
  EXPECT_NE(refusal(run_view(std::numeric_limits<int64_t>::max() - 1, 1), 8, 8, 8).find("does not fit in int64"),
            std::string::npos);
}

TEST(PackCells, MessageOfAnotherSize_IsRefused) {
  EXPECT_EQ(refusal(run_view(0, 3), 4, 20, 11), "InvalidArgument: the message has 11 bytes but its cells have 12");
  EXPECT_EQ(refusal(run_view(0, 3), 4, 20, 16), "InvalidArgument: the message has 16 bytes but its cells have 12");
}

TEST(PackCells, ElementsOfNoBytes_AreRefused) {
  EXPECT_EQ(refusal(run_view(0, 3), 0, 20, 0), "InvalidArgument: item_bytes is 0 but must be at least 1");
  EXPECT_EQ(refusal(run_view(0, 3), -4, 20, 0), "InvalidArgument: item_bytes is -4 but must be at least 1");
}

TEST(CopyCells, UnequalCellsOrViewThatLeavesItsBuffer_IsRefused) {
  const Bytes from(8);
  Bytes to(8);
  EXPECT_EQ(error_of([&] { copy_cells(run_view(0, 3), from, {0, {2}, {2}}, to, 1); }),
            "InvalidArgument: view [0:3] has 3 cells but view 0+(2,)*(2,) has 2");
  EXPECT_EQ(error_of([&] { copy_cells(run_view(6, 3), from, run_view(0, 3), to, 1); }),
            "InvalidArgument: view [6:9] of elements of 1 bytes leaves its buffer of 8 bytes");
  EXPECT_EQ(error_of([&] { copy_cells(run_view(0, 3), from, run_view(6, 3), to, 1); }),
            "InvalidArgument: view [6:9] of elements of 1 bytes leaves its buffer of 8 bytes");
}

}  // namespace
}  // namespace hyper_parallel
