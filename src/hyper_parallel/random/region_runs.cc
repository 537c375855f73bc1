#include "hyper_parallel/random/region_runs.h"

namespace hyper_parallel {
namespace {

/// The runs of one box whose cells begin at local element `local`; returns where they end.
int64_t visit_box(const Box& box, const Dims& shape, int64_t local,
                  const std::function<void(const RegionRun&)>& visit) {
  // Dims from `outer` on are one run: whole ones, and at most one cut dim outside them.
  size_t outer = shape.size();
  int64_t length = 1;
  while (outer > 0) {
    --outer;
    length *= box.sizes[outer];
    if (box.sizes[outer] != shape[outer]) break;
  }
  const Dims strides = row_major_strides(shape);
  int64_t first = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim) first += box.offsets[dim] * strides[dim];
  Dims index(outer, 0);
  for (;;) {
    visit({first, {local, local + length}});
    local += length;
    size_t dim = outer;
    for (; dim > 0; --dim) {
      const size_t moved = dim - 1;
      first += strides[moved];
      if (++index[moved] < box.sizes[moved]) break;
      first -= index[moved] * strides[moved];
      index[moved] = 0;
    }
    if (dim == 0) return local;
  }
}

}  // namespace

void for_each_run(const Region& region, const Dims& shape, const std::function<void(const RegionRun&)>& visit) {
  int64_t local = 0;
  for (const Box& box : region_boxes(region)) {
    if (!box.empty()) local = visit_box(box, shape, local, visit);
  }
}

}  // namespace hyper_parallel
