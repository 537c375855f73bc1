#pragma once

// The checks of geometry/local_shape.h on tensors, and the logical shape by asking the other ranks.

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "hyper_parallel/geometry/local_shape.h"
#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/torch/mesh_communicator.h"

namespace hyper_parallel {

/// Throws kInvalidArgument unless `local` is `rank`'s part of a tensor of `shape` under `layout`.
void check_local(const at::Tensor& local, const Layout& layout, std::span<const int64_t> shape, int64_t rank);

/// The logical shape of the tensor of which every rank of the mesh holds `local`. Along mesh dims that are not
/// Replicate or Partial the local sizes of all ranks are gathered, one small message to each peer, and must follow the
/// Shard rule. Throws alike on all ranks: kInvalidArgument where they do not, kOutOfRange for a Shard dim.
std::vector<int64_t> infer_global_shape(const at::Tensor& local, const Layout& layout, const MeshCommunicator& mesh);

}  // namespace hyper_parallel
