#pragma once

// SavePlan: what one rank offers to save, or is told to save: names, boxes and values, no bytes.

#include <cstdint>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/geometry/region.h"

namespace hyper_parallel {

/// A tensor and the boxes of it that the rank holds, in the order of its local storage; none on a rank whose share is
/// empty, which says all the same that the tensor exists.
struct PlannedTensor {
  std::string name;
  DType dtype = DType::kF32;
  Dims shape;
  std::vector<Box> boxes;
  friend bool operator==(const PlannedTensor&, const PlannedTensor&) = default;
};

struct SavePlan {
  std::vector<PlannedTensor> tensors;
  std::vector<NamedValue> values;
  Value structure;
  friend bool operator==(const SavePlan&, const SavePlan&) = default;
};

/// One box to write: the unit in which data is asked for.
struct WriteItem {
  const PlannedTensor* tensor = nullptr;
  size_t box = 0;  // index into tensor->boxes

  const Box& extent() const { return tensor->boxes[box]; }
  int64_t bytes() const;
};

/// The plan of a rank that owns `region` of the tensor. Its boxes are those of `region_boxes`, empty ones left out.
PlannedTensor planned_tensor(std::string name, DType dtype, Dims shape, const Region& region);

/// Every rank's share of the work, and what the checkpoint will hold.
struct GlobalSavePlan {
  /// Per rank, tensors by name and boxes in the order of the rank's local storage; tensors that a rank writes nothing
  /// of are left out. A tensor without cells is on the lowest rank that has it, with no boxes.
  std::vector<SavePlan> assigned;
  std::vector<NamedValue> values;  // of the whole checkpoint, sorted by name
  Value structure;
};

/// Unites the ranks' plans and gives each stored box to exactly one of the ranks that hold it.
///
/// Which one is a fixed function of the tensor's name and of the ranks that hold the box: of n holders in ascending
/// order, the one with number (FNV-1a-64(name) + number of the box in row-major order of offsets) mod n. So every save
/// of the same state chooses alike, and many tensors spread over the replicas.
///
/// Of a value that several ranks have, the lowest rank's is taken. Structures are united: dicts by key, lists and
/// tuples by position.
///
/// Throws kInvalidArgument, naming the tensor and two ranks, if ranks disagree on dtype or shape or if one has a value
/// where another has a tensor; if the boxes, equal ones counted once, do not tile the tensor; if a rank has a name or a
/// box twice, or a name that is not UTF-8; if structures do not fit together.
///
/// Costs O(n log n) for n boxes of all ranks.
GlobalSavePlan unite_save_plans(const std::vector<SavePlan>& plans);

/// The values part of it: of each name the lowest rank's value, sorted by name.
std::vector<NamedValue> unite_values(const std::vector<SavePlan>& plans);

/// The plan as bytes for another rank of the same job, and back. `decode_save_plan` throws kInternal for bytes that
/// `encode_save_plan` did not make.
std::string encode_save_plan(const SavePlan& plan);
SavePlan decode_save_plan(std::string_view bytes);

}  // namespace hyper_parallel
