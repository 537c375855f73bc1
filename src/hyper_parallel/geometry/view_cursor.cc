#include "hyper_parallel/geometry/view_cursor.h"

#include <span>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

int64_t bytes_of_elements(int64_t elements, int64_t bits, const StridedView& view) {
  if (bits % 8 == 0) return checked_mul(elements, bits / 8);
  const int64_t total = checked_mul(elements, bits);
  HP_CHECK(total % 8 == 0, kUnimplemented, "view ", to_string(view), " of elements of ", bits,
           " bits begins or ends inside a byte; such tensors can be cut only between bytes");
  return total / 8;
}

}  // namespace

Interval ByteView::hull() const {
  Interval hull{offset, checked_add(offset, run)};
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    const int64_t reach = checked_mul(sizes[dim] - 1, strides[dim]);
    int64_t& side = reach < 0 ? hull.begin : hull.end;
    side = checked_add(side, reach);
  }
  return hull;
}

ByteView byte_view(const StridedView& view, int64_t bits_per_element) {
  HP_CHECK(view.sizes.size() == view.strides.size() && view.numel() > 0, kInvalidArgument, "view ", to_string(view),
           " must have as many strides as sizes, and cells");
  const StridedView smallest = collapsed_view(view.offset, view.sizes, view.strides);
  const auto scaled = [&](int64_t elements) { return bytes_of_elements(elements, bits_per_element, view); };
  const bool ends_in_runs = smallest.strides[smallest.strides.size() - 1] == 1;
  const size_t outer = smallest.sizes.size() - (ends_in_runs ? 1 : 0);
  ByteView bytes;
  bytes.offset = scaled(smallest.offset);
  bytes.run = scaled(ends_in_runs ? smallest.sizes[outer] : 1);
  bytes.sizes = Dims(std::span<const int64_t>(smallest.sizes.data(), outer));
  bytes.strides = Dims(outer, 0);
  for (size_t dim = 0; dim < outer; ++dim) bytes.strides[dim] = scaled(smallest.strides[dim]);
  return bytes;
}

ViewCursor::ViewCursor(ByteView view)
    : view_(std::move(view)), index_(view_.sizes.size(), 0), begin_(view_.offset), position_(begin_), run_(view_.run) {}

void ViewCursor::next_run() {
  for (size_t dim = index_.size(); dim-- > 0;) {
    if (++index_[dim] < view_.sizes[dim]) {
      begin_ += view_.strides[dim];
      position_ = begin_;
      run_ = view_.run;
      return;
    }
    begin_ -= (view_.sizes[dim] - 1) * view_.strides[dim];
    index_[dim] = 0;
  }
}

}  // namespace hyper_parallel
