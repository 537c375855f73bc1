#pragma once

// Layout: a mesh and one placement per mesh dim. Says how a tensor lies on the ranks, for any shape that fits.
//
// Three views of one value:
//   placements()         the original placements, ragged ones with their dims and units
//   ragged_shard()       the ragged placement and its mesh dim, if there is one
//   normal_placements()  the ragged placement replaced by Replicate: what code that knows tensor maps alone works with
//
// Invariants: as many placements as mesh dims; at most one RaggedShard, with a unit for each rank of its mesh dim, and
// Replicate on every other mesh dim. Immutable, hashable, cheap to copy. Equality covers the mesh (shape, names, whole
// rank list) and every placement with its dims and units.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hyper_parallel/mesh/device_mesh.h"
#include "hyper_parallel/placement/placement.h"

namespace hyper_parallel {

struct RaggedShardInfo {
  int64_t mesh_dim;
  RaggedShard placement;
  friend bool operator==(const RaggedShardInfo&, const RaggedShardInfo&) = default;
};

class Layout {
 public:
  /// Throws kInvalidArgument where an invariant above does not hold.
  Layout(DeviceMesh mesh, std::vector<Placement> placements);

  /// A layout that may have Partial beside RaggedShard, which no user may ask for: how the summed gradients of a ragged
  /// tensor with replicas lie before they are reduced. Throws for every other broken invariant.
  static Layout with_partial_beside_ragged(DeviceMesh mesh, std::vector<Placement> placements);

  const DeviceMesh& mesh() const { return data_->mesh; }
  const std::vector<Placement>& placements() const { return data_->placements; }
  const std::optional<RaggedShardInfo>& ragged_shard() const { return data_->ragged; }
  std::vector<Placement> normal_placements() const;
  bool is_ragged() const { return data_->ragged.has_value(); }
  bool has_partial() const;

  /// The layout with other placements on the same mesh.
  Layout with_placements(std::vector<Placement> placements) const;

  /// The layout for a tensor of `ndim` dims: negative Shard dims counted from the end are replaced by their position.
  /// Throws kOutOfRange for a Shard dim outside [-ndim, ndim) and kInvalidArgument for ragged dims beyond ndim or a
  /// negative ndim.
  Layout folded(int64_t ndim) const;

  size_t hash() const { return data_->hash; }
  friend bool operator==(const Layout& a, const Layout& b) {
    return a.data_ == b.data_ || (a.data_->hash == b.data_->hash && a.data_->mesh == b.data_->mesh &&
                                  a.data_->placements == b.data_->placements);
  }

 private:
  struct Data {
    DeviceMesh mesh;
    std::vector<Placement> placements;
    std::optional<RaggedShardInfo> ragged;
    bool folded = false;    // no negative Shard dim
    int64_t last_dim = -1;  // the greatest tensor dim that a placement names
    size_t hash = 0;
  };

  enum class Beside { kReplicate, kReplicateOrPartial };
  Layout(DeviceMesh mesh, std::vector<Placement> placements, Beside beside_ragged);

  std::shared_ptr<const Data> data_;
};

/// "Layout(DeviceMesh((2,), ('dp',)), [Shard(0)])".
std::string to_string(const Layout& layout);
/// Reads what `to_string` prints; throws kInvalidArgument.
Layout parse_layout(std::string_view text);

/// Throws kInvalidArgument for a negative size or more elements than int64 counts.
void check_global_shape(std::span<const int64_t> shape);

/// How many cells of the leading dims make one unit: prod(shape[:k]) / sum(units) for k dims. Throws kInvalidArgument
/// for dims beyond the tensor's rank and cells that the units' sum does not divide (also where the suffix is empty).
int64_t cells_per_unit(const RaggedShard& ragged, std::span<const int64_t> shape);

/// Throws unless a tensor of `shape` can lie so: as `check_global_shape`, kInvalidArgument for ragged dims beyond the
/// tensor's rank or prefix cells that the units' sum does not divide (also where the suffix is empty), kOutOfRange for
/// a Shard dim.
void check_shape(const Layout& layout, std::span<const int64_t> shape);

}  // namespace hyper_parallel

template <>
struct std::hash<hyper_parallel::Layout> {
  size_t operator()(const hyper_parallel::Layout& layout) const { return layout.hash(); }
};
