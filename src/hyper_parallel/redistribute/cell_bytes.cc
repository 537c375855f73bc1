#include "hyper_parallel/redistribute/cell_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/geometry/view_cursor.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kBitsPerByte = 8;

/// The view in bytes; throws unless it lies within a buffer of `size` bytes.
ByteView checked_view(const StridedView& view, int64_t item_bytes, size_t size) {
  HP_CHECK(item_bytes >= 1, kInvalidArgument, "item_bytes is ", item_bytes, " but must be at least 1");
  ByteView bytes = byte_view(view, checked_mul(item_bytes, kBitsPerByte));
  const Interval hull = bytes.hull();
  HP_CHECK(hull.begin >= 0 && std::cmp_less_equal(hull.end, size), kInvalidArgument, "view ", to_string(view),
           " of elements of ", item_bytes, " bytes leaves its buffer of ", size, " bytes");
  return bytes;
}

std::vector<ByteView> checked_views(std::span<const StridedView> views, int64_t item_bytes, size_t buffer,
                                    size_t message) {
  std::vector<ByteView> bytes;
  bytes.reserve(views.size());
  int64_t total = 0;
  for (const StridedView& view : views) {
    bytes.push_back(checked_view(view, item_bytes, buffer));
    total = checked_add(total, checked_mul(view.numel(), item_bytes));
  }
  HP_CHECK(std::cmp_equal(message, total), kInvalidArgument, "the message has ", message, " bytes but its cells have ",
           total);
  return bytes;
}

/// Where runs lie: one every `stride` bytes.
template <typename Byte>
struct Runs {
  Byte* begin;
  int64_t stride;
};

/// Copies `count` runs of a width that the compiler knows, so that each copy is a load and a store.
template <size_t kWidth>
void copy_runs_of(Runs<std::byte> to, Runs<const std::byte> from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to.begin + i * to.stride, from.begin + i * from.stride, kWidth);
}

void copy_runs(Runs<std::byte> to, Runs<const std::byte> from, int64_t count, int64_t width) {
  switch (width) {
    case 1:
      return copy_runs_of<1>(to, from, count);
    case 2:
      return copy_runs_of<2>(to, from, count);
    case 4:
      return copy_runs_of<4>(to, from, count);
    case 8:
      return copy_runs_of<8>(to, from, count);
    case 16:
      return copy_runs_of<16>(to, from, count);
    default:
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(to.begin + i * to.stride, from.begin + i * from.stride, static_cast<size_t>(width));
      }
  }
}

/// A line of runs along the innermost dim of a view.
struct Row {
  int64_t offset;
  int64_t count;
  int64_t stride;
};

/// Calls `visit(row)` for each row of the view, in row-major order.
template <typename Visit>
void for_each_row(const ByteView& view, const Visit& visit) {
  if (view.sizes.empty()) {
    visit(Row{view.offset, 1, view.run});
    return;
  }
  const size_t outer = view.sizes.size() - 1;
  Dims index(outer, 0);
  Row row{view.offset, view.sizes[outer], view.strides[outer]};
  while (true) {
    visit(row);
    size_t dim = outer;
    while (dim-- > 0) {
      row.offset += view.strides[dim];
      if (++index[dim] < view.sizes[dim]) break;
      row.offset -= view.sizes[dim] * view.strides[dim];
      index[dim] = 0;
    }
    if (dim == SIZE_MAX) return;
  }
}

/// Between views of which neither is one run.
void copy_run_by_run(const ByteView& source, std::span<const std::byte> from, const ByteView& target,
                     std::span<std::byte> to) {
  ViewCursor read(source);
  ViewCursor write(target);
  while (!write.done()) {
    const int64_t bytes = std::min(read.run(), write.run());
    std::memcpy(to.data() + write.position(), from.data() + read.position(), static_cast<size_t>(bytes));
    read.advance(bytes);
    write.advance(bytes);
  }
}

void pack(const ByteView& view, const std::byte* from, std::byte* message) {
  for_each_row(view, [&](const Row& row) {
    copy_runs({message, view.run}, {from + row.offset, row.stride}, row.count, view.run);
    message += row.count * view.run;
  });
}

void unpack(const ByteView& view, const std::byte* message, std::byte* to) {
  for_each_row(view, [&](const Row& row) {
    copy_runs({to + row.offset, row.stride}, {message, view.run}, row.count, view.run);
    message += row.count * view.run;
  });
}

}  // namespace

void pack_cells(std::span<const StridedView> views, int64_t item_bytes, std::span<const std::byte> from,
                std::span<std::byte> message) {
  const std::vector<ByteView> parts = checked_views(views, item_bytes, from.size(), message.size());
  std::byte* at = message.data();
  for (size_t i = 0; i < views.size(); ++i) {
    pack(parts[i], from.data(), at);
    at += views[i].numel() * item_bytes;
  }
}

void unpack_cells(std::span<const StridedView> views, int64_t item_bytes, std::span<const std::byte> message,
                  std::span<std::byte> to) {
  const std::vector<ByteView> parts = checked_views(views, item_bytes, to.size(), message.size());
  const std::byte* at = message.data();
  for (size_t i = 0; i < views.size(); ++i) {
    unpack(parts[i], at, to.data());
    at += views[i].numel() * item_bytes;
  }
}

void copy_cells(const StridedView& source, std::span<const std::byte> from, const StridedView& target,
                std::span<std::byte> to, int64_t item_bytes) {
  const ByteView read = checked_view(source, item_bytes, from.size());
  const ByteView write = checked_view(target, item_bytes, to.size());
  HP_CHECK(source.numel() == target.numel(), kInvalidArgument, "view ", to_string(source), " has ", source.numel(),
           " cells but view ", to_string(target), " has ", target.numel());
  if (write.sizes.empty()) {
    pack(read, from.data(), to.data() + write.offset);
  } else if (read.sizes.empty()) {
    unpack(write, from.data() + read.offset, to.data());
  } else {
    copy_run_by_run(read, from, write, to);
  }
}

}  // namespace hyper_parallel
