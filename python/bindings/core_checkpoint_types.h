#pragma once

// The plain data of the checkpoint in Python: what planners and storages hand each other.

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/load_plan.h"
#include "hyper_parallel/checkpoint/save_plan.h"

namespace hyper_parallel::bindings {

/// Names a box of a tensor: where it begins, nothing for the tensor as a whole.
struct MetadataIndex {
  std::string fqn;
  std::optional<std::vector<int64_t>> offset;
  friend bool operator==(const MetadataIndex&, const MetadataIndex&) = default;
};

/// A WriteItem that stands by itself.
struct WriteItemObject {
  PlannedTensor tensor;  // with the one box

  WriteItem item() const { return {&tensor, 0}; }
};

/// A ReadItem with the chunk that it reads from.
struct ReadItemObject {
  ReadItem item;
  LoadTarget target;
  DType stored_dtype = DType::kF32;
  Box chunk;
};

/// A LoadPlan and the metadata that its items refer to.
struct LoadPlanObject {
  LoadPlan plan;
  const CheckpointMetadata* metadata = nullptr;  // kept alive by the Python object
};

ReadItemObject read_item_object(const CheckpointMetadata& metadata, const LoadPlan& plan, const ReadItem& item);

void bind_checkpoint_types(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
