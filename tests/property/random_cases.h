#pragma once

// Random meshes, shapes, layouts and pairs of layouts for the properties. The functions draw (see property.h), so they
// run inside `drawn` only; what they give shrinks to small meshes, short shapes and Replicate.

#include <iosfwd>
#include <vector>

#include "hyper_parallel/geometry/distribution.h"
#include "hyper_parallel/layout/layout.h"
#include "tests/property/property.h"

namespace hyper_parallel::test {

inline constexpr int64_t kMostRanks = 12;
inline constexpr int64_t kMostElements = 240;

/// 1 to 3 dims of sizes 1 to 4, at most kMostRanks ranks; the rank list in order, or permuted with holes.
DeviceMesh draw_mesh();

/// Another mesh over the ranks of `mesh`, of any shape and in any order.
DeviceMesh draw_mesh_over_ranks_of(const DeviceMesh& mesh);

/// `least_ndim` to 4 dims, zeros among them now and then, at most kMostElements elements.
Dims draw_shape(int64_t least_ndim = 0);

/// A RaggedShard for `ranks` ranks that fits `shape`, which has at least one dim; zero units are frequent.
RaggedShard draw_ragged_shard(const Dims& shape, int64_t ranks);

/// Replicate and Shard in any combination; negative Shard dims now and then.
Layout draw_normal_layout(const DeviceMesh& mesh, const Dims& shape);

/// A RaggedShard on one mesh dim, Replicate on the others; `shape` has at least one dim.
Layout draw_ragged_layout(const DeviceMesh& mesh, const Dims& shape);

/// One of the two above.
Layout draw_layout_without_partial(const DeviceMesh& mesh, const Dims& shape);

/// A normal layout with Partial on at least one mesh dim, of one op or of several.
Layout draw_partial_layout(const DeviceMesh& mesh, const Dims& shape);

/// Any layout, on any mesh, and a shape that it fits.
struct LayoutOfShape {
  Layout layout;
  Dims shape;
};

std::ostream& operator<<(std::ostream& out, const LayoutOfShape& value);

LayoutOfShape draw_layout_of_shape();

/// Splits that no layout has, too: FlatSplit on any mesh dim, Partial beside RaggedShard.
Distribution draw_distribution(const DeviceMesh& mesh, const Dims& shape);

/// Any run within [0, size].
Interval draw_interval(int64_t size);

/// Any block of a tensor of `shape`, or a run of one.
Region draw_region(const Dims& shape);

/// Two distributions on one mesh, the second without Partial. No FlatSplit of the first stands outside a Partial:
/// reductions are resolved innermost first, so that the planner never makes one there.
struct DistributionPair {
  Distribution source;
  Distribution target;
};

std::ostream& operator<<(std::ostream& out, const DistributionPair& pair);

DistributionPair draw_distributions();

/// A pair of layouts that may be redistributed.
struct Redistribution {
  Layout source;
  Layout target;
  Dims shape;
};

std::ostream& operator<<(std::ostream& out, const Redistribution& pair);

/// No Partial; the meshes differ now and then where neither layout is ragged.
Redistribution draw_redistribution_without_partial();

/// A source with Partial. Some of its Partial dims stay now and then, those that the others need not overtake.
Redistribution draw_redistribution_of_partial();

}  // namespace hyper_parallel::test
