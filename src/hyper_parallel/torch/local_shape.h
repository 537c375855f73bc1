#pragma once

// What a rank's local tensor must look like, and the logical shape when only local tensors are known.

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/torch/mesh_communicator.h"

namespace hyper_parallel {

/// Throws kInvalidArgument unless `local` is `rank`'s part of a tensor of `shape` under `layout`: with RaggedShard 1-D,
/// contiguous and of the length of the rank's run; else of the sizes of its box; without elements outside the mesh.
void check_local(const at::Tensor& local, const Layout& layout, std::span<const int64_t> shape, int64_t rank);

/// The logical shape of the tensor of which every rank of the mesh holds `local`. Along mesh dims that are not
/// Replicate or Partial the local sizes of all ranks are gathered, one small message to each peer, and must follow the
/// Shard rule. Throws alike on all ranks: kInvalidArgument where they do not, kOutOfRange for a Shard dim.
std::vector<int64_t> infer_global_shape(const at::Tensor& local, const Layout& layout, const MeshCommunicator& mesh);

}  // namespace hyper_parallel
