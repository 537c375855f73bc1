#pragma once

// PlanCache: rank plans already made, keyed by the whole value (both layouts, shape, rank), bounded, least recently
// used out first.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "hyper_parallel/redistribute/rank_plan.h"

namespace hyper_parallel {

class PlanCache {
 public:
  /// Keeps at most `capacity` plans; 0 keeps none, and every call plans anew.
  explicit PlanCache(size_t capacity) : capacity_(capacity) {}

  /// The plan from `source` to `target` for a tensor of `shape`, as `rank` runs it. Throws as `plan_redistribution`,
  /// and keeps nothing then. Safe to call from several threads.
  std::shared_ptr<const RankPlan> get(const Layout& source, const Layout& target, const Dims& shape, int64_t rank);

  size_t size() const;
  int64_t hits() const;
  int64_t misses() const;

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
  struct Entry {
    Key key;
    std::shared_ptr<const RankPlan> plan;
  };

  size_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
  int64_t hits_ = 0;
  int64_t misses_ = 0;
};

}  // namespace hyper_parallel
