#pragma once

// Planners over plain buffers: each tensor is a rank's boxes and the bytes of its local storage.

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/planner.h"

namespace hyper_parallel {

/// The elements (one byte wide, or more) of boxes before box number `box`.
inline int64_t elements_before(const std::vector<Box>& boxes, size_t box) {
  int64_t count = 0;
  for (size_t i = 0; i < box; ++i) count += boxes[i].numel();
  return count;
}

/// Saves local storages: `buffers[i]` is that of `plan.tensors[i]`.
class BufferSavePlanner : public SavePlanner {
 public:
  void add(PlannedTensor tensor, std::string buffer) {
    plan.tensors.push_back(std::move(tensor));
    buffers.push_back(std::move(buffer));
  }

  SavePlan build_local_plan() override { return plan; }

  HeldBytes get_data(const WriteItem& item) override {
    ++data_calls;
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      if (plan.tensors[i].name != item.tensor->name) continue;
      const std::vector<Box>& boxes = plan.tensors[i].boxes;
      for (size_t box = 0; box < boxes.size(); ++box) {
        if (boxes[box] == item.extent()) return {bytes_of_box(i, box), nullptr};
      }
    }
    raise(ErrorCode::kInternal, "box ", to_string(item.extent()), " of ", item.tensor->name, " is not this rank's");
  }

  bool may_cache_plan() const override { return may_cache; }

  SavePlan plan;
  std::vector<std::string> buffers;
  bool may_cache = false;
  int data_calls = 0;

 private:
  std::span<const std::byte> bytes_of_box(size_t tensor, size_t box) const {
    const PlannedTensor& planned = plan.tensors[tensor];
    const auto width = static_cast<size_t>(bits_per_element(planned.dtype) / 8);
    const auto before = static_cast<size_t>(elements_before(planned.boxes, box));
    const auto count = static_cast<size_t>(planned.boxes[box].numel());
    return std::as_bytes(std::span(buffers[tensor])).subspan(before * width, count * width);
  }
};

/// Loads into local storages: `buffers[i]` is that of `targets[i]`.
class BufferLoadPlanner : public LoadPlanner {
 public:
  void add(LoadTarget target) {
    const auto width = static_cast<size_t>(bits_per_element(target.dtype) / 8);
    buffers.emplace_back(static_cast<size_t>(elements_before(target.boxes, target.boxes.size())) * width, '\xEE');
    targets.push_back(std::move(target));
  }

  LoadPlan build_local_plan(const CheckpointMetadata& metadata) override {
    ++plans;
    return plan_load(metadata, targets, options);
  }

  TargetView acquire_tensor(const LoadPlan& plan, const ReadItem& item) override {
    const auto target = static_cast<size_t>(item.target);
    return {std::as_writable_bytes(std::span(buffers[target])), view_in_target(item, plan.targets[target]), nullptr};
  }

  void finish() override { ++finishes; }

  std::vector<LoadTarget> targets;
  std::vector<std::string> buffers;
  LoadOptions options;
  int plans = 0;
  int finishes = 0;
};

}  // namespace hyper_parallel
