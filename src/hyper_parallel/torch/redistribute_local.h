#pragma once

// Redistribution of local tensors, differentiable: the autograd graph of a DTensor lives on its local tensors.
//
// Inside, a DTensor program means what the unsharded program means, so the gradient of a tensor lies as the tensor
// does, with Replicate where the tensor is Partial: all replicas' gradients are equal. The backward of source -> target
// takes the gradient from where it lies to the gradient layout of the source:
//
//   Shard, ragged -> Replicate        a slice
//   Replicate -> Shard, ragged        an all-gather
//   Partial -> anything               the incoming gradient on every rank; avg: divided by the group's size;
//                                     max, min: shared equally among the ranks that hold the extreme
//
// Leaving the DTensor world is the same function with another layout of the incoming gradient: outside, ranks may
// compute different losses, which are summed, so what is Replicate inside counts as Partial(sum).

#include <ATen/core/Tensor.h>

#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/torch/mesh_communicator.h"

namespace hyper_parallel {

/// How the gradient of a tensor lies: as the tensor, Replicate where it is Partial.
Layout gradient_layout(const Layout& layout);

/// How a gradient that comes from outside lies: Partial(sum) where the tensor is Replicate, Replicate where it is
/// Partial (each share's own), else as the tensor.
Layout leaving_layout(const Layout& layout);

struct Redistribution {
  Layout source;
  Layout target;
  Layout incoming;  // how the gradient of the result lies: gradient_layout(target), or what leaving says
  Dims shape;       // logical
};

/// This rank's local tensor of `target`, from that of `source`. `local` itself if nothing moves in either direction.
/// Differentiable any number of times. Every rank of the mesh must call alike, with `requires_grad` the same on all.
at::Tensor redistribute_local(const at::Tensor& local, const Redistribution& redistribution,
                              const MeshCommunicator& communicator);

}  // namespace hyper_parallel
