#include "hyper_parallel/geometry/ragged_split.h"

#include <algorithm>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/layout/layout.h"

namespace hyper_parallel {

RaggedSplit::RaggedSplit(const RaggedShard& placement, std::span<const int64_t> shape) : placement_(placement) {
  const int64_t cells = cells_per_unit(placement, shape);
  elements_per_unit_ = checked_mul(cells, checked_product(shape.subspan(static_cast<size_t>(placement.dim_count()))));
  checked_mul(elements_per_unit_, placement.total_units());  // so that no cut overflows
}

Interval RaggedSplit::owners(Interval cells) const {
  if (cells.empty() || elements_per_unit_ == 0) return {0, 0};
  const auto& cuts = placement_.cuts();
  const int64_t first_unit = cells.begin / elements_per_unit_;
  const int64_t last_unit = (cells.end - 1) / elements_per_unit_;
  // The last rank that starts at or before a unit owns it: ranks of no units share its cut but come before it.
  const auto owner = [&](int64_t unit) { return std::ranges::upper_bound(cuts, unit) - cuts.begin() - 1; };
  return {owner(first_unit), owner(last_unit) + 1};
}

bool same_split(const RaggedSplit& a, const RaggedSplit& b) {
  const auto& left = a.placement_.local_units();
  const auto& right = b.placement_.local_units();
  if (left.size() != right.size()) return false;
  if (a.elements_per_unit_ == b.elements_per_unit_ && a.placement_ == b.placement_) return true;
  for (int64_t rank = 0; rank < a.placement_.rank_count(); ++rank) {
    if (!(a.owned(rank) == b.owned(rank))) return false;
  }
  return true;
}

}  // namespace hyper_parallel
