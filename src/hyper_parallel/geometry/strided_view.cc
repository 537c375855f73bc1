#include "hyper_parallel/geometry/strided_view.h"

#include <array>
#include <span>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {

int64_t StridedView::numel() const { return checked_product(sizes); }

StridedView run_view(int64_t offset, int64_t count) { return {offset, Dims{count}, Dims{1}}; }

StridedView collapsed_view(int64_t offset, const Dims& sizes, const Dims& strides) {
  Dims kept_sizes(sizes.size(), 0);
  Dims kept_strides(sizes.size(), 0);
  size_t kept = 0;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 1) continue;
    if (kept > 0 && kept_strides[kept - 1] == sizes[dim] * strides[dim]) {
      kept_sizes[kept - 1] *= sizes[dim];
      kept_strides[kept - 1] = strides[dim];
    } else {
      kept_sizes[kept] = sizes[dim];
      kept_strides[kept] = strides[dim];
      ++kept;
    }
  }
  if (kept == 0) return run_view(offset, 1);
  return {offset, Dims(std::span<const int64_t>(kept_sizes.data(), kept)),
          Dims(std::span<const int64_t>(kept_strides.data(), kept))};
}

std::string to_string(const StridedView& view) {
  if (view.is_contiguous()) return str_cat("[", view.offset, ":", view.offset + view.sizes[0], "]");
  return str_cat(view.offset, "+", tuple_text(view.sizes), "*", tuple_text(view.strides));
}

}  // namespace hyper_parallel
