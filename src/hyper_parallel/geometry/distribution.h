#pragma once

// Distribution: how a tensor of one shape lies on a mesh. From it follow what a rank owns and who owns a region.
//
// It is a Layout bound to a shape, and wider: the planner needs steps in between that no user may ask for, namely
// Partial beside RaggedShard, and FlatSplit, which cuts each block that the other mesh dims leave into even runs.
//
// Definitions. For a coordinate c of the mesh: the Shard dims cut the tensor to a box, axis by axis, outer mesh dims
// first; a RaggedShard instead takes a run of the whole tensor; FlatSplit dims then cut that region's row-major order,
// inner mesh dims first, as pending reductions are resolved. Replicate and Partial cut nothing. A mesh dim *splits* if
// its split is Shard, RaggedShard or FlatSplit.

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hyper_parallel/geometry/ragged_split.h"
#include "hyper_parallel/geometry/region.h"
#include "hyper_parallel/layout/layout.h"

namespace hyper_parallel {

struct FlatSplit {
  friend bool operator==(const FlatSplit&, const FlatSplit&) = default;
};

using DimSplit = std::variant<Replicate, Shard, Partial, RaggedShard, FlatSplit>;

bool splits(const DimSplit& split);
std::string to_string(const DimSplit& split);

class Distribution {
 public:
  /// A layout bound to a shape. Throws as `check_shape`.
  Distribution(const Layout& layout, const Dims& shape);
  /// Any splits that have a meaning: at most one RaggedShard, no Shard beside it, Shard dims not negative. Throws
  /// kInvalidArgument, and kOutOfRange for a Shard dim.
  Distribution(DeviceMesh mesh, std::vector<DimSplit> splits, Dims shape);

  const DeviceMesh& mesh() const { return mesh_; }
  const std::vector<DimSplit>& dim_splits() const { return splits_; }
  const Dims& shape() const { return shape_; }

  /// The same tensor with another split on one mesh dim.
  Distribution with_split(int64_t mesh_dim, DimSplit split) const;

  /// What the rank at `coordinate` owns.
  Region owned(const Dims& coordinate) const;

  /// A rank's local tensor shape: (numel,) for ragged and FlatSplit distributions, else the sizes of its box.
  Dims local_shape(const Dims& coordinate) const;

  /// Calls `visit(coordinate, region)` for every coordinate that may own a cell of `wanted`: all that do are among
  /// them. Where `fixed[d]` is set, only coordinates with that value in mesh dim d are visited. Costs as much as the
  /// coordinates visited and a binary search; never a walk over the mesh.
  using Visit = std::function<void(const Dims& coordinate, const Region& region)>;
  void for_each_owner(const Region& wanted, const std::vector<std::optional<int64_t>>& fixed, const Visit& visit) const;

  /// True if each rank owns under `finer` a part of what it owns here, whatever the rank: decided from the splits, so
  /// true on every rank alike. Both lie on the same mesh. (It may be false for coarse shapes where it happens to hold.)
  bool is_refined_by(const Distribution& finer) const;

  friend bool operator==(const Distribution& a, const Distribution& b) {
    return a.shape_ == b.shape_ && a.mesh_ == b.mesh_ && a.splits_ == b.splits_;
  }

 private:
  class OwnerWalk;

  DeviceMesh mesh_;
  std::vector<DimSplit> splits_;
  Dims shape_;
  std::optional<RaggedSplit> ragged_;
  size_t ragged_dim_ = 0;
  std::vector<size_t> flat_dims_;
};

/// "[Shard(0), FlatSplit()]"; many units are counted, not listed.
std::string short_text(const Distribution& distribution);

}  // namespace hyper_parallel
