#pragma once

// CallCache: plans of calls already made, keyed by everything that they follow from, bounded, least recently used out
// first. Safe to use from several threads.

#include <cstdint>
#include <string>
#include <vector>

#include "hyper_parallel/base/lru_cache.h"
#include "hyper_parallel/operations/call_plan.h"

namespace hyper_parallel {

struct CallKey {
  struct Operand {
    Dims shape;
    Layout layout;
    int64_t item_bytes;
    friend bool operator==(const Operand&, const Operand&) = default;
  };

  /// Names the operation and all arguments that its rule may read, tensors apart: unlike calls have unlike texts.
  std::string call;
  std::vector<Operand> operands;
  int64_t rank;
  friend bool operator==(const CallKey&, const CallKey&) = default;
};

struct CallKeyHash {
  size_t operator()(const CallKey& key) const;
};

using CallCache = LruCache<CallKey, CallPlan, CallKeyHash>;

}  // namespace hyper_parallel
