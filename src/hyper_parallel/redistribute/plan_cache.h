#pragma once

// PlanCache: rank plans already made, keyed by the whole value (both layouts, shape, rank), bounded, least recently
// used out first.

#include <cstdint>
#include <memory>

#include "hyper_parallel/base/lru_cache.h"
#include "hyper_parallel/redistribute/rank_plan.h"

namespace hyper_parallel {

class PlanCache {
 public:
  /// Keeps at most `capacity` plans; 0 keeps none, and every call plans anew.
  explicit PlanCache(size_t capacity) : plans_(capacity) {}

  /// The plan from `source` to `target` for a tensor of `shape`, as `rank` runs it. Throws as `plan_redistribution`,
  /// and keeps nothing then. Safe to call from several threads.
  std::shared_ptr<const RankPlan> get(const Layout& source, const Layout& target, const Dims& shape, int64_t rank);

  size_t size() const { return plans_.size(); }
  int64_t hits() const { return plans_.hits(); }
  int64_t misses() const { return plans_.misses(); }

 private:
  struct Key {
    Layout source;
    Layout target;
    Dims shape;
    int64_t rank;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };

  LruCache<Key, RankPlan, KeyHash> plans_;
};

}  // namespace hyper_parallel
