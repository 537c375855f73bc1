#include "hyper_parallel/geometry/interval_boxes.h"

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

/// The largest block that starts at cell `begin`, is contiguous in row-major order and ends at or before `end`.
IntervalBox first_block(const Dims& shape, const Dims& strides, Interval rest) {
  // Find the outermost dim whose sub-blocks (cells of strides[dim] elements) both start at `begin` and fit at least
  // once.
  size_t dim = 0;
  while (dim + 1 < shape.size() && (rest.begin % strides[dim] != 0 || rest.size() < strides[dim])) ++dim;
  Box box{Dims(shape.size(), 0), shape};
  int64_t remainder = rest.begin;
  for (size_t d = 0; d <= dim; ++d) {
    box.offsets[d] = remainder / strides[d];
    remainder %= strides[d];
    box.sizes[d] = 1;
  }
  const int64_t room = shape[dim] - box.offsets[dim];
  box.sizes[dim] = std::min(room, rest.size() / strides[dim]);
  return {box, {rest.begin, rest.begin + box.sizes[dim] * strides[dim]}};
}

}  // namespace

std::vector<IntervalBox> interval_to_boxes(const Dims& shape, Interval interval) {
  const int64_t numel = checked_product(shape);
  HP_CHECK(interval.begin >= 0 && interval.begin <= interval.end && interval.end <= numel, kOutOfRange, "interval [",
           interval.begin, ", ", interval.end, ") leaves the ", numel, " cells of shape ", tuple_text(shape));
  std::vector<IntervalBox> boxes;
  if (interval.empty()) return boxes;
  if (shape.empty()) return {{Box{}, interval}};
  boxes.reserve(2 * shape.size() - 1);
  const Dims strides = row_major_strides(shape);
  while (!interval.empty()) {
    boxes.push_back(first_block(shape, strides, interval));
    interval.begin = boxes.back().flat.end;
  }
  return boxes;
}

}  // namespace hyper_parallel
