#pragma once

// LoadPlan: which bytes of which chunks go where, for one rank.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/geometry/region.h"

namespace hyper_parallel {

/// A tensor that the rank wants to fill, and the boxes of it that it holds, laid end to end in its local storage.
struct LoadTarget {
  std::string name;
  DType dtype = DType::kF32;
  Dims shape;
  std::vector<Box> boxes;
  friend bool operator==(const LoadTarget&, const LoadTarget&) = default;
};

LoadTarget load_target(std::string name, DType dtype, Dims shape, const Region& region);

/// One overlap of a stored chunk and a wanted box.
struct ReadItem {
  int64_t target = 0;  // index into LoadPlan::targets
  int64_t box = 0;     // index into the target's boxes
  int64_t tensor = 0;  // index into CheckpointMetadata::tensors()
  int64_t chunk = 0;   // of that tensor
  Box overlap;         // cells, in tensor coordinates
  friend bool operator==(const ReadItem&, const ReadItem&) = default;
};

struct LoadPlan {
  std::vector<LoadTarget> targets;
  /// Sorted by (file, begin of the chunk, overlap): the order in which bytes lie on the disk.
  std::vector<ReadItem> items;
};

/// Where an item's cells lie, in elements: in the chunk, and in the target's local storage (boxes end to end).
StridedView view_in_chunk(const ReadItem& item, const Box& chunk);
StridedView view_in_target(const ReadItem& item, const LoadTarget& target);

/// What a load may leave undone. Each list has names or patterns of fnmatch(3): "optimizer.*".
struct LoadOptions {
  std::vector<std::string> allow_missing = {};  // wanted but not stored: left as they are
  std::vector<std::string> allow_extra = {};    // stored but wanted by no rank: not read
  std::vector<std::string> allow_cast = {};     // of another dtype than stored: converted
};

/// Throws kInvalidArgument, naming the entry (up to ten that are missing), for a target that is not stored (unless
/// allowed), is stored as a value, has a box that does not lie in the tensor, has another shape, or another dtype
/// (unless allowed; the item then has the stored elements, the caller converts). A missing target that is allowed has
/// no items.
LoadPlan plan_load(const CheckpointMetadata& metadata, std::vector<LoadTarget> targets, const LoadOptions& options);

/// True if one of the names or patterns matches.
bool allows(const std::vector<std::string>& patterns, std::string_view name);

/// For messages: "'a', 'b' and 3 more", at most ten of them shown.
std::string name_list(const std::vector<std::string_view>& names);

}  // namespace hyper_parallel
