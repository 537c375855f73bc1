#pragma once

// The place in the autograd graph where an operation that each rank runs on its own cells has made shares of a result.
//
// All ranks have the gradient of such a result alike, and each goes on with it for its own cells. That gradient is then
// a replicated tensor that meets sharded ones, one level up: what comes back to it in a second backward pass are
// shares, which are summed here.
//
//   y = sum(x)         x Shard(0), y Partial(sum)
//   g_x = expand(g_y)  g_y Replicate, used by each rank for its cells
//   v   = sum(v_x)     what comes back to g_y: Partial(sum)

#include <ATen/core/Tensor.h>

#include <vector>

#include "hyper_parallel/torch/mesh_communicator.h"

namespace hyper_parallel {

/// `local` behind such a node: the same values, storage and version. `layout` is that of the tensor, of `shape`;
/// `cut_dims` are the mesh dims on which this operation has made it Partial. `local` itself where nothing requires
/// grad.
at::Tensor behind_share_node(const at::Tensor& local, const Layout& layout, const Dims& shape,
                             const std::vector<int64_t>& cut_dims, const MeshCommunicator& communicator);

/// `local` behind a node whose second backward pass raises kUnimplemented, naming `operation`: that of a product of a
/// pending reduction and another tensor that requires grad, whose gradients of second order would be in shares for one
/// and alike on all ranks for the other.
at::Tensor behind_first_order_node(const at::Tensor& local, std::string_view operation);

}  // namespace hyper_parallel
