#pragma once

// Redistribution of local tensors, differentiable: the autograd graph of a DTensor lives on its local tensors.
// `redistribute/redistribution.h` says how gradients go back.

#include <ATen/core/Tensor.h>

#include "hyper_parallel/redistribute/redistribution.h"
#include "hyper_parallel/torch/mesh_communicator.h"

namespace hyper_parallel {

/// This rank's local tensor of `target`, from that of `source`. `local` itself if nothing moves in either direction.
/// Differentiable any number of times. Every rank of the mesh must call alike, with `requires_grad` the same on all.
///
/// `ties` says of a share of a max or min how many cells it stands for (`extreme_ties.h`), on all ranks or on none: the
/// gradient is shared among the ranks by these. Undefined: each counts for one.
at::Tensor redistribute_local(const at::Tensor& local, const Redistribution& redistribution,
                              const MeshCommunicator& communicator, const at::Tensor& ties = {});

/// The ties of the target's share, where a max or min stays pending there; else undefined. Communicates; every rank of
/// the mesh must call alike.
at::Tensor redistribute_ties(const at::Tensor& share, const at::Tensor& ties, const Redistribution& redistribution,
                             const MeshCommunicator& communicator);

}  // namespace hyper_parallel
