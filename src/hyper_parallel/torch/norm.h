#pragma once

// Vector norms of DTensors. The norm of a tensor is the norm of the norms of its parts, so each rank sends one number
// per result, and the gradient is that of these two local norms, also where a norm is zero.

#include <vector>

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// torch.linalg.vector_norm: (self, ord, dim, keepdim, dtype). The result is Replicate on mesh dims that cut reduced
/// dims. Throws kUnimplemented for a ragged operand and an order that is not positive, which parts do not combine by;
/// kInvalidArgument for a Partial operand; as torch for a dtype.
std::vector<DTensor> vector_norm(const Operation& operation, const BoundCall& call);

/// torch._foreach_norm: (self, ord, dtype), the norm of each tensor. Tensors that lie on one mesh and are cut by the
/// same mesh dims communicate together.
std::vector<DTensor> foreach_norm(const Operation& operation, const BoundCall& call);

}  // namespace hyper_parallel
