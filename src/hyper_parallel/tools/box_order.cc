#include "hyper_parallel/tools/box_order.h"

#include <algorithm>

namespace hyper_parallel {

int64_t cells_before(const Box& box, const Dims& shape, int64_t flat) {
  const Dims tensor_strides = row_major_strides(shape);
  const Dims box_strides = row_major_strides(box.sizes);
  int64_t before = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const int64_t x = flat / tensor_strides[dim];
    flat %= tensor_strides[dim];
    const int64_t in_box = x - box.offsets[dim];
    before += std::clamp<int64_t>(in_box, 0, box.sizes[dim]) * box_strides[dim];
    if (in_box < 0 || in_box >= box.sizes[dim]) return before;  // the box has no cell with this prefix
  }
  return before + (shape.size() == 0 ? flat : 0);  // a tensor of rank 0 is one cell
}

}  // namespace hyper_parallel
