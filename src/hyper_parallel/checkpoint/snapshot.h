#pragma once

// Snapshot: a copy of the bytes that a rank is about to write, so that the tensors may change while they are written.
//
// The copies lie in one piece of memory, which the next snapshot uses again: fresh pages cost more than the copy.

#include <memory>

#include "hyper_parallel/checkpoint/planner.h"

namespace hyper_parallel {

/// Memory for snapshots, kept between them.
class SnapshotMemory {
 public:
  SnapshotMemory() = default;
  ~SnapshotMemory();
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;

  /// At least `bytes`, aligned to a page; the content is not defined and earlier results are gone.
  std::span<std::byte> reserve(int64_t bytes);

 private:
  std::span<std::byte> memory_;
};

/// Copies get_data() of every box of `plan`. Only `get_data` may be called on the result, which uses `memory` and
/// refers to `plan`: both must outlive it.
std::unique_ptr<SavePlanner> take_snapshot(const SavePlan& plan, SavePlanner& planner, SnapshotMemory& memory);

}  // namespace hyper_parallel
