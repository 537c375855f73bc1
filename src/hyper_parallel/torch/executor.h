#pragma once

// The executor: runs a rank plan on tensors. It obeys: every decision stands in the plan.

#include <ATen/core/Tensor.h>

#include "hyper_parallel/redistribute/rank_plan.h"
#include "hyper_parallel/torch/mesh_communicator.h"

namespace hyper_parallel {

/// This rank's part of a plan, on its local tensor `local` (the storage of the plan's source, any strides). Returns the
/// target's local tensor, of shape `plan.target_shape` and `local`'s dtype, contiguous: `local` itself where the plan
/// has no step, else new storage. No autograd. Every rank of the mesh must call with the same plan.
///
/// Messages go straight from and into tensor memory where they are contiguous there. Throws kType for a reduction that
/// the dtype does not have (avg of integers, any of bool), alike on all ranks; kFailedPrecondition as
/// `exchange_messages`.
at::Tensor execute(const RankPlan& plan, const at::Tensor& local, const MeshCommunicator& communicator);

}  // namespace hyper_parallel
