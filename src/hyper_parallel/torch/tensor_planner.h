#pragma once

// The planners of tensors: DTensors of any layout and plain tensors, by name.
//
// A DTensor's boxes are those of its layout (`geometry/region.h`); a plain tensor is one box, and equal names on
// several ranks are replicas of one tensor. A rank whose share is empty plans no box.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "hyper_parallel/checkpoint/planner.h"
#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel {

struct NamedTensor {
  std::string name;
  std::variant<DTensor, at::Tensor> tensor;
};

/// What a rank saves: entries by flat name, and how the names nest (see CheckpointParts).
struct TensorState {
  std::vector<NamedTensor> tensors;
  std::vector<NamedValue> values;
  Value structure;
};

/// Plans and reads tensors for a save. Holds them, not copies of their elements.
class TensorSavePlanner : public SavePlanner {
 public:
  explicit TensorSavePlanner(TensorState state);

  /// Throws, naming the entry: kInvalidArgument for a Partial DTensor, kType for an element type that cannot be stored,
  /// a sparse, quantized, nested or meta tensor, a tensor subclass or a tensor whose storage was freed,
  /// kInvalidArgument for a name twice.
  SavePlan build_local_plan() override;
  /// The elements in place where the local tensor is contiguous in host memory, else a copy.
  HeldBytes get_data(const WriteItem& item) override;
  /// True without RaggedShard: a plan made under other units must never be used again.
  bool may_cache_plan() const override;

  const TensorState& state() const { return state_; }

 private:
  TensorState state_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

/// Fills tensors in place, autograd leaves among them.
///
/// Contiguous host tensors of the stored dtype are filled directly. Others (strided, on a device, of another dtype
/// where that is allowed) are filled through a contiguous host copy of the local part, written at `finish`.
class TensorLoadPlanner : public LoadPlanner {
 public:
  TensorLoadPlanner(std::vector<NamedTensor> targets, LoadOptions options);

  /// Throws as `plan_load` and TensorSavePlanner do; kInvalidArgument also for a target whose elements share memory.
  LoadPlan build_local_plan(const CheckpointMetadata& metadata) override;
  TargetView acquire_tensor(const LoadPlan& plan, const ReadItem& item) override;
  void finish() override;

  const std::vector<NamedTensor>& targets() const { return targets_; }

 private:
  /// Where a target's elements go.
  struct Place {
    LoadTarget wanted;
    at::ScalarType stored;
    at::Tensor staged;  // the host copy; undefined where the target is filled directly
    bool is_touched = false;
  };

  std::vector<NamedTensor> targets_;
  LoadOptions options_;
  std::vector<Place> places_;  // by target, from `build_local_plan` on
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace hyper_parallel
