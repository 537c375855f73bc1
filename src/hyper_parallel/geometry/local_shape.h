#pragma once

// What a rank's local tensor must look like, and the logical shape when only local tensors are known.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hyper_parallel/layout/layout.h"

namespace hyper_parallel {

/// Sizes and strides of a local tensor, one of each per dim; strides count elements.
struct LocalShape {
  std::span<const int64_t> sizes;
  std::span<const int64_t> strides;
};

/// The most dims of a local tensor that ranks tell each other.
inline constexpr int64_t kMostLocalDims = 64;

/// Throws kInvalidArgument unless `local` is `rank`'s part of a tensor of `shape` under `layout`: with RaggedShard 1-D,
/// contiguous and of the length of the rank's run; else of the sizes of its box; without elements outside the mesh.
void check_local(const LocalShape& local, const Layout& layout, std::span<const int64_t> shape, int64_t rank);

/// Throws kInvalidArgument with RaggedShard: there the flat local tensors do not tell the logical shape.
void check_shape_can_be_inferred(const Layout& layout);

/// The logical shape where `rank`'s own local tensor of these `sizes` tells it: nothing is sharded. Nothing where the
/// ranks must tell each other their sizes, for `infer_global_shape`. Throws kInvalidArgument as above, outside the
/// mesh, and where the ranks would have to tell more than kMostLocalDims sizes.
std::optional<std::vector<int64_t>> known_global_shape(const Layout& layout, std::span<const int64_t> sizes,
                                                       int64_t rank);

/// The logical shape of a tensor whose local tensors have these sizes, one entry for each rank in mesh order. They must
/// follow the Shard rule: kInvalidArgument where they do not, kOutOfRange for a Shard dim.
std::vector<int64_t> infer_global_shape(const Layout& layout, const std::vector<std::vector<int64_t>>& local_sizes);

}  // namespace hyper_parallel
