#include "hyper_parallel/geometry/region.h"

#include "hyper_parallel/base/checked.h"

namespace hyper_parallel {
namespace {

/// The flat index of the cell at `coordinate` in a tensor with these strides.
int64_t flat_index(const Dims& coordinate, const Dims& strides) {
  int64_t index = 0;
  for (size_t dim = 0; dim < coordinate.size(); ++dim) index += coordinate[dim] * strides[dim];
  return index;
}

/// The place of `box`, which lies in `region`, in the region's local storage.
StridedView local_view(const Box& box, const Region& region) {
  const Dims strides = row_major_strides(region.box.sizes);
  int64_t offset = -region.flat.begin;
  for (size_t dim = 0; dim < box.ndim(); ++dim) offset += (box.offsets[dim] - region.box.offsets[dim]) * strides[dim];
  return collapsed_view(offset, box.sizes, strides);
}

/// True if the cells of `box` follow one another in a tensor of `shape`: only dims of size 1 stand before the dim that
/// the box cuts, and only whole dims behind it.
bool is_run(const Box& box, const Dims& shape) {
  const size_t ndim = shape.size();
  size_t cut = 0;
  while (cut < ndim && box.sizes[cut] == 1) ++cut;
  for (size_t dim = cut + 1; dim < ndim; ++dim) {
    if (box.sizes[dim] != shape[dim]) return false;
  }
  return true;
}

/// The place in a tensor with these strides of cell number `cell` of the box.
int64_t flat_index_of_cell(const Box& box, int64_t cell, const Dims& strides) {
  int64_t index = 0;
  for (size_t dim = box.ndim(); dim-- > 0;) {
    index += (box.offsets[dim] + cell % box.sizes[dim]) * strides[dim];
    cell /= box.sizes[dim];
  }
  return index;
}

}  // namespace

Region region_of(Box box) {
  const int64_t numel = box.numel();
  return {std::move(box), {0, numel}};
}

std::optional<Interval> flat_run(const Region& region, const Dims& shape) {
  const Interval hull = flat_hull(region, shape);
  return hull.size() == region.numel() ? std::optional(hull) : std::nullopt;
}

Interval flat_hull(const Region& region, const Dims& shape) {
  if (region.empty()) return {};
  const Dims strides = row_major_strides(shape);
  if (is_run(region.box, shape)) {
    const int64_t start = flat_index(region.box.offsets, strides);
    return {start + region.flat.begin, start + region.flat.end};
  }
  // The box's own order agrees with the tensor's, so the first and the last cell are the ends.
  return {flat_index_of_cell(region.box, region.flat.begin, strides),
          flat_index_of_cell(region.box, region.flat.end - 1, strides) + 1};
}

Box bounding_box(const Region& region) {
  Box box = region.box;
  if (region.empty() || region.is_whole_box()) return box;
  const Dims strides = row_major_strides(region.box.sizes);
  int64_t first = region.flat.begin;
  int64_t last = region.flat.end - 1;
  for (size_t dim = 0; dim < box.ndim(); ++dim) {
    const int64_t low = first / strides[dim];
    const int64_t high = last / strides[dim];
    box.offsets[dim] += low;
    box.sizes[dim] = high - low + 1;
    if (low != high) break;
    first %= strides[dim];
    last %= strides[dim];
  }
  return box;
}

std::vector<Box> region_boxes(const Region& region) {
  if (region.empty()) return {};
  if (region.is_whole_box()) return {region.box};
  std::vector<Box> boxes;
  for (IntervalBox& part : interval_to_boxes(region.box.sizes, region.flat)) {
    for (size_t dim = 0; dim < part.box.ndim(); ++dim) part.box.offsets[dim] += region.box.offsets[dim];
    boxes.push_back(std::move(part.box));
  }
  return boxes;
}

std::vector<Piece> intersect(const Region& a, const Region& b, const Dims& shape) {
  if (a.empty() || b.empty()) return {};
  const auto run_a = flat_run(a, shape);
  const auto run_b = run_a ? flat_run(b, shape) : std::nullopt;
  if (run_b) {
    const Interval both = intersect(*run_a, *run_b);
    if (both.empty()) return {};
    return {{run_view(both.begin - run_a->begin, both.size()), run_view(both.begin - run_b->begin, both.size())}};
  }
  std::vector<Piece> pieces;
  const std::vector<Box> boxes_b = region_boxes(b);
  for (const Box& box_a : region_boxes(a)) {
    for (const Box& box_b : boxes_b) {
      if (const auto both = intersect(box_a, box_b)) pieces.push_back({local_view(*both, a), local_view(*both, b)});
    }
  }
  return pieces;
}

int64_t overlap_numel(const Region& a, const Region& b, const Dims& shape) {
  int64_t count = 0;
  for (const Piece& piece : intersect(a, b, shape)) count += piece.in_a.numel();
  return count;
}

}  // namespace hyper_parallel
