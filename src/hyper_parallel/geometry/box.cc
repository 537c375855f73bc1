#include "hyper_parallel/geometry/box.h"

#include <algorithm>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {

int64_t Box::numel() const { return checked_product(sizes); }

std::string to_string(const Box& box) { return str_cat(tuple_text(box.offsets), "+", tuple_text(box.sizes)); }

Box whole_box(const Dims& shape) { return {Dims(shape.size(), 0), shape}; }

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box both{Dims(a.ndim(), 0), Dims(a.ndim(), 0)};
  for (size_t dim = 0; dim < a.ndim(); ++dim) {
    const Interval range = intersect(a.range(dim), b.range(dim));
    if (range.empty()) return std::nullopt;
    both.offsets[dim] = range.begin;
    both.sizes[dim] = range.size();
  }
  return both;
}

Dims row_major_strides(const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t dim = sizes.size(); dim-- > 1;) {
    strides[dim - 1] = checked_mul(strides[dim], std::max<int64_t>(sizes[dim], 1));
  }
  return strides;
}

}  // namespace hyper_parallel
