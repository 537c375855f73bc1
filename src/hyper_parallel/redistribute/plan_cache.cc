#include "hyper_parallel/redistribute/plan_cache.h"

#include "hyper_parallel/base/hash.h"
#include "hyper_parallel/redistribute/planner.h"

namespace hyper_parallel {

size_t PlanCache::KeyHash::operator()(const Key& key) const {
  size_t seed = key.source.hash();
  hash_combine(seed, key.target.hash());
  hash_combine_range(seed, key.shape);
  hash_combine(seed, key.rank);
  return seed;
}

std::shared_ptr<const RankPlan> PlanCache::get(const Layout& source, const Layout& target, const Dims& shape,
                                               int64_t rank) {
  const int64_t ndim = static_cast<int64_t>(shape.size());
  const Key key{source.folded(ndim), target.folded(ndim), shape, rank};
  return plans_.get(key, [&] { return rank_plan(plan_redistribution(key.source, key.target, shape), rank); });
}

}  // namespace hyper_parallel
