#pragma once

// The planners' roles: what a save or load asks of whoever owns the tensors. This layer knows bytes; the tensors of a
// framework are behind these interfaces.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "hyper_parallel/checkpoint/load_plan.h"
#include "hyper_parallel/checkpoint/save_plan.h"

namespace hyper_parallel {

/// Bytes and whoever keeps them alive.
struct HeldBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // null: the planner keeps them
};

class SavePlanner {
 public:
  virtual ~SavePlanner() = default;

  /// What this rank holds. Throws kInvalidArgument or kType, naming the entry, for what cannot be stored.
  virtual SavePlan build_local_plan() = 0;
  /// On the coordinator: `unite_save_plans` unless overridden.
  virtual GlobalSavePlan build_global_plan(const std::vector<SavePlan>& plans) { return unite_save_plans(plans); }
  /// The row-major bytes of one box that this rank was told to write, item.bytes() of them. Valid until the save ends
  /// or `owner` is let go, whichever comes first. Called once per item.
  virtual HeldBytes get_data(const WriteItem& item) = 0;

  /// True if the plan may be kept for the next save of an equal local plan.
  virtual bool may_cache_plan() const { return false; }
};

/// Writable memory for one ReadItem: cell x of the overlap, in row-major order, is element view[x] of `storage`.
struct TargetView {
  std::span<std::byte> storage;
  StridedView view;  // in elements of the stored dtype
  std::shared_ptr<void> owner;
};

/// get_data(item). Throws kInvalidArgument if it does not give item.bytes() bytes.
HeldBytes checked_data(SavePlanner& planner, const WriteItem& item);

class LoadPlanner {
 public:
  virtual ~LoadPlanner() = default;

  /// `plan_load` of this rank's targets unless overridden. Must not touch the targets.
  virtual LoadPlan build_local_plan(const CheckpointMetadata& metadata) = 0;
  /// Where the item's bytes are to go.
  virtual TargetView acquire_tensor(const LoadPlan& plan, const ReadItem& item) = 0;
  /// All items are read and verified: copies what was read beside the targets (casts, strided targets, devices).
  virtual void finish() {}
};

}  // namespace hyper_parallel
