#include "tests/property/cells.h"

#include <stdexcept>
#include <utility>

namespace hyper_parallel::test {

void walk(const Dims& sizes, const std::function<void(const Dims&)>& visit) {
  Dims index(sizes.size(), 0);
  const std::function<void(size_t)> descend = [&](size_t dim) {
    if (dim == sizes.size()) return visit(index);
    for (index[dim] = 0; index[dim] < sizes[dim]; ++index[dim]) descend(dim + 1);
  };
  descend(0);
}

Cells cells_of(const Box& box, const Dims& shape) {
  Cells cells;
  int64_t cell = 0;
  walk(shape, [&](const Dims& index) {
    bool inside = true;
    for (size_t dim = 0; dim < index.size(); ++dim) {
      inside = inside && index[dim] >= box.offsets[dim] && index[dim] < box.offsets[dim] + box.sizes[dim];
    }
    if (inside) cells.push_back(cell);
    ++cell;
  });
  return cells;
}

Cells cells_of(const Region& region, const Dims& shape) {
  const Cells block = cells_of(region.box, shape);
  const auto [begin, end] = region.flat;
  if (begin < 0 || begin > end || std::cmp_greater(end, block.size())) {
    throw std::out_of_range("the region's run leaves its box");
  }
  return {block.begin() + begin, block.begin() + end};
}

Cells places_of(const StridedView& view) {
  Cells places;
  walk(view.sizes, [&](const Dims& index) {
    int64_t place = view.offset;
    for (size_t dim = 0; dim < index.size(); ++dim) place += index[dim] * view.strides[dim];
    places.push_back(place);
  });
  return places;
}

int64_t count_cells(const Dims& shape) {
  int64_t count = 0;
  walk(shape, [&](const Dims&) { ++count; });
  return count;
}

}  // namespace hyper_parallel::test
