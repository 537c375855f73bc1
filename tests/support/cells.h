#pragma once

// For tests of geometry: regions as plain lists of cells, found one by one. A cell is its number in the row-major order
// of the whole tensor.

#include <vector>

#include "hyper_parallel/geometry/box.h"
#include "hyper_parallel/geometry/strided_view.h"

namespace hyper_parallel {

using Cells = std::vector<int64_t>;

/// 0, 1, .., numel - 1 of a tensor of `shape`.
inline Cells all_cells(const Dims& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  Cells cells;
  for (int64_t cell = 0; cell < numel; ++cell) cells.push_back(cell);
  return cells;
}

/// The cells of a tensor of `shape` that lie in `box`, in row-major order: each cell of the tensor is asked.
inline Cells cells_of(const Box& box, const Dims& shape) {
  Cells inside;
  for (const int64_t cell : all_cells(shape)) {
    bool holds = true;
    int64_t rest = cell;
    for (size_t dim = shape.size(); dim-- > 0; rest /= shape[dim]) {
      const int64_t x = rest % shape[dim];
      holds = holds && x >= box.offsets[dim] && x < box.offsets[dim] + box.sizes[dim];
    }
    if (holds) inside.push_back(cell);
  }
  return inside;
}

/// The storage elements that a view names, in the view's row-major order.
inline std::vector<int64_t> elements_of(const StridedView& view) {
  std::vector<int64_t> elements{view.offset};
  for (size_t dim = 0; dim < view.sizes.size(); ++dim) {
    std::vector<int64_t> next;
    for (const int64_t element : elements) {
      for (int64_t x = 0; x < view.sizes[dim]; ++x) next.push_back(element + x * view.strides[dim]);
    }
    elements = next;
  }
  return elements;
}

}  // namespace hyper_parallel
