#pragma once

// TensorMap: a layout seen from the tensor. One entry per tensor dim says which mesh axes split it:
//
//   ()        none, written -1
//   (a,)      mesh axis a, written a
//   (a, b)    first axis a, then axis b within it: outermost first
//
// Mesh axes are counted from the innermost mesh dim: mesh dim i of n is axis n - 1 - i. Example: mesh (2, 2) named
// ("dp", "tp") with [Shard(0), Shard(1)] on a tensor of 3 dims is (1, 0, -1).
//
// The entries alone cannot say Partial or RaggedShard, so the value carries both beside them and the way there and back
// loses nothing.

#include <optional>
#include <string>
#include <vector>

#include "hyper_parallel/layout/layout.h"

namespace hyper_parallel {

struct TensorMap {
  std::vector<std::vector<int64_t>> entries;     // per tensor dim, the axes that split it
  std::vector<std::optional<ReduceOp>> partial;  // per mesh dim (outermost first), the pending reduction
  std::optional<RaggedShardInfo> ragged;         // put back on its mesh dim

  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};

/// "(1, 0, -1)", "((1, 0), -1)".
std::string to_string(const TensorMap& map);

/// The map of `layout` for a tensor of `ndim` dims. Works on the layout's normal view, so a ragged mesh dim never shows
/// as an ordinary shard. Throws as `Layout::folded`.
TensorMap placement_to_tensor_map(const Layout& layout, int64_t ndim);

/// The reverse. Throws kInvalidArgument for an axis outside the mesh, one that stands twice or is Partial or ragged at
/// the same time, and kUnimplemented for a tuple that is not outermost first (no list of placements says that).
Layout tensor_map_to_placement(const DeviceMesh& mesh, const TensorMap& map);

}  // namespace hyper_parallel
