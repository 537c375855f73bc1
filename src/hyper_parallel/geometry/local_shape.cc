#include "hyper_parallel/geometry/local_shape.h"

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/geometry/distribution.h"

namespace hyper_parallel {
namespace {

void check_ragged_local(const LocalShape& local, int64_t expected, int64_t rank) {
  HP_CHECK(local.sizes.size() == 1, kInvalidArgument, "local has shape ", tuple_text(local.sizes),
           " but with RaggedShard it must be 1-D: the flat run of rank ", rank);
  const int64_t numel = local.sizes[0];
  HP_CHECK(numel <= 1 || local.strides[0] == 1, kInvalidArgument, "local has stride ", local.strides[0],
           " but with RaggedShard it must be contiguous");
  HP_CHECK(numel == expected, kInvalidArgument, "local has ", numel, " elements but rank ", rank, " owns ", expected,
           " of them under RaggedShard");
}

/// The size of tensor dim `dim`: the sum of the local sizes along the mesh dims that shard it, the other coordinates
/// being 0.
int64_t summed_size(const Layout& layout, const std::vector<std::vector<int64_t>>& local_sizes, size_t dim) {
  int64_t sum = 0;
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    const Dims coordinate = layout.mesh().coordinate_at(position);
    bool counts = true;
    for (size_t mesh_dim = 0; mesh_dim < coordinate.size(); ++mesh_dim) {
      const bool shards = layout.placements()[mesh_dim] == Placement(Shard(static_cast<int64_t>(dim)));
      counts = counts && (shards || coordinate[mesh_dim] == 0);
    }
    if (counts) sum = checked_add(sum, local_sizes[static_cast<size_t>(position)][dim]);
  }
  return sum;
}

/// Throws unless every rank's local tensor has the sizes of its box of a tensor of `shape`.
void check_all_locals(const Layout& layout, const std::vector<int64_t>& shape,
                      const std::vector<std::vector<int64_t>>& local_sizes) {
  const Distribution distribution(layout, Dims(shape));
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    const Dims expected = distribution.local_shape(layout.mesh().coordinate_at(position));
    const auto& sizes = local_sizes[static_cast<size_t>(position)];
    HP_CHECK(std::ranges::equal(sizes, expected), kInvalidArgument, "from_local: rank ",
             layout.mesh().ranks()[static_cast<size_t>(position)], " has a local of shape ", tuple_text(sizes),
             " but owns ", tuple_text(expected), " of shape ", tuple_text(shape),
             ", to which the local sizes add up, under ", short_text(layout.placements()));
  }
}

}  // namespace

void check_local(const LocalShape& local, const Layout& layout, std::span<const int64_t> shape, int64_t rank) {
  HP_CHECK(local.sizes.size() == local.strides.size(), kInvalidArgument, "local has ", local.sizes.size(),
           " sizes and ", local.strides.size(), " strides");
  const auto coordinate = layout.mesh().coordinate(rank);
  if (!coordinate) {
    const int64_t numel = checked_product(local.sizes);
    HP_CHECK(numel == 0, kInvalidArgument, "local has ", numel, " elements but rank ", rank,
             " is outside the mesh and owns none");
    return;
  }
  const Dims expected = Distribution(layout, Dims(shape)).local_shape(*coordinate);
  if (layout.is_ragged()) {
    check_ragged_local(local, expected[0], rank);
    return;
  }
  HP_CHECK(std::ranges::equal(local.sizes, expected), kInvalidArgument, "local has shape ", tuple_text(local.sizes),
           " but rank ", rank, " owns ", tuple_text(expected), " of shape ", tuple_text(shape), " under ",
           short_text(layout.placements()));
}

void check_shape_can_be_inferred(const Layout& layout) {
  HP_CHECK(
      !layout.is_ragged(), kInvalidArgument,
      "from_local: shape is missing but with RaggedShard the logical shape cannot be told from the flat local tensor");
}

std::optional<std::vector<int64_t>> known_global_shape(const Layout& layout, std::span<const int64_t> sizes,
                                                       int64_t rank) {
  check_shape_can_be_inferred(layout);
  const bool is_member = layout.mesh().contains(rank);
  const bool whole = std::ranges::none_of(layout.placements(), is_shard);
  if (whole && is_member) return std::vector<int64_t>(sizes.begin(), sizes.end());
  HP_CHECK(is_member, kInvalidArgument, "from_local: shape is missing but rank ", rank,
           " is outside the mesh and cannot tell it");
  HP_CHECK(std::cmp_less_equal(sizes.size(), kMostLocalDims), kInvalidArgument, "local has ", sizes.size(),
           " dims but at most ", kMostLocalDims, " can be told to other ranks");
  return std::nullopt;
}

std::vector<int64_t> infer_global_shape(const Layout& layout, const std::vector<std::vector<int64_t>>& local_sizes) {
  check_shape_can_be_inferred(layout);
  HP_CHECK(std::cmp_equal(local_sizes.size(), layout.mesh().size()), kInvalidArgument, "from_local: there are ",
           local_sizes.size(), " local shapes but the mesh has ", layout.mesh().size(), " ranks");
  const int64_t ndim = std::ssize(local_sizes.front());
  const Layout folded = layout.folded(ndim);
  for (const auto& sizes : local_sizes) {
    HP_CHECK(std::ssize(sizes) == ndim, kInvalidArgument, "from_local: the ranks' local tensors have ", ndim, " and ",
             sizes.size(), " dims");
  }
  std::vector<int64_t> shape;
  for (size_t dim = 0; std::cmp_less(dim, ndim); ++dim) shape.push_back(summed_size(folded, local_sizes, dim));
  check_all_locals(folded, shape, local_sizes);
  return shape;
}

}  // namespace hyper_parallel
