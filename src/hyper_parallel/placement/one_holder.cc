#include "hyper_parallel/placement/one_holder.h"

#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {

RaggedShard one_holder(int64_t owner, int64_t ranks) {
  HP_DCHECK(owner >= 0 && owner < ranks);
  std::vector<int64_t> units(static_cast<size_t>(ranks), 0);
  units[static_cast<size_t>(owner)] = 1;
  return RaggedShard({0}, std::move(units));
}

}  // namespace hyper_parallel
