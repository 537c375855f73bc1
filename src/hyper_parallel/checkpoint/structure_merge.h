#pragma once

// StructureMerge: one structure (CheckpointParts::structure) out of those of many ranks.
//
// Dicts are united by key: keys stand in the order in which they are first met, lowest rank first. Lists and tuples are
// united by position; the result is as long as the longest. Leaves are the names of entries and must be equal.

#include <cstdint>
#include <memory>

#include "hyper_parallel/checkpoint/value.h"

namespace hyper_parallel {

class StructureMerge {
 public:
  StructureMerge();
  ~StructureMerge();

  /// Takes in the structure of a rank, lowest rank first; `structure` must outlive this object. Throws
  /// kInvalidArgument, naming the place and two ranks, if it does not fit to what came before.
  /// Costs as much as the structure is large, however many came before.
  void add(int64_t rank, const Value& structure);

  /// None if nothing was added.
  Value result() const;

 private:
  struct Node;

  const Value* first_ = nullptr;  // all that there is while every rank's structure is equal
  int64_t first_rank_ = 0;
  const Value* latest_ = nullptr;
  std::unique_ptr<Node> root_;  // from the first that differs
};

}  // namespace hyper_parallel
