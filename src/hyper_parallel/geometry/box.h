#pragma once

// Box: an axis-aligned block of an N-D index space, and the row-major order of its cells.

#include <cstdint>
#include <optional>
#include <string>

#include "hyper_parallel/base/dims.h"
#include "hyper_parallel/geometry/interval.h"

namespace hyper_parallel {

/// The cells x with offsets[d] <= x[d] < offsets[d] + sizes[d]. A box of rank 0 is one cell.
struct Box {
  Dims offsets;
  Dims sizes;

  size_t ndim() const { return sizes.size(); }
  int64_t numel() const;
  bool empty() const { return numel() == 0; }
  Interval range(size_t dim) const { return {offsets[dim], offsets[dim] + sizes[dim]}; }
  friend bool operator==(const Box&, const Box&) = default;
};

/// "(0, 1, 2)+(1, 1, 3)": offsets and sizes.
std::string to_string(const Box& box);

/// The box of all cells of a tensor of `shape`.
Box whole_box(const Dims& shape);

/// What both hold, nothing where that is no cell. The boxes have the same rank.
std::optional<Box> intersect(const Box& a, const Box& b);

/// Row-major strides of a tensor of `sizes`, in elements: strides[last] == 1, and a size 0 counts as 1, as in torch.
/// Throws kInvalidArgument where a stride leaves int64, which only a tensor without cells can bring about.
Dims row_major_strides(const Dims& sizes);

}  // namespace hyper_parallel
