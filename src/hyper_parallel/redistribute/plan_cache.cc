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
  Key key{source.folded(ndim), target.folded(ndim), shape, rank};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = index_.find(key); found != index_.end()) {
      ++hits_;
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->plan;
    }
    ++misses_;
  }
  // Planned outside the lock: two threads may plan the same value, which costs time but not truth.
  auto plan = std::make_shared<const RankPlan>(rank_plan(plan_redistribution(key.source, key.target, shape), rank));
  const std::lock_guard lock(mutex_);
  if (capacity_ == 0 || index_.contains(key)) return plan;
  entries_.push_front({key, plan});
  index_.emplace(std::move(key), entries_.begin());
  if (entries_.size() > capacity_) {
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return plan;
}

size_t PlanCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

int64_t PlanCache::hits() const {
  const std::lock_guard lock(mutex_);
  return hits_;
}

int64_t PlanCache::misses() const {
  const std::lock_guard lock(mutex_);
  return misses_;
}

}  // namespace hyper_parallel
