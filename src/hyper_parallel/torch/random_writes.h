#pragma once

// In-place random numbers: x.uniform_() and x.normal_(), with which parameters are initialised.
//
// As of the factories (`factories.h`) an element depends on its position in the whole tensor and on (seed, mesh, number
// of the call) alone: replicas are equal, and the whole is the same however it is cut, ragged layouts included.

#include <vector>

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// torch.Tensor.uniform_: (self, from, to, generator), uniform in [from, to). uniform_(0, 1) writes what `rand` draws.
///
/// Throws on every rank, before anything is drawn: kInvalidArgument for from > to, bounds or a distance that the dtype
/// does not hold, a Partial tensor, or a view whose write would be lost; kType for a dtype that is not floating point,
/// and for a generator; kFailedPrecondition for a leaf that requires grad.
std::vector<DTensor> uniform_in_place(const Operation& operation, const BoundCall& call);

/// torch.Tensor.normal_: (self, mean, std, generator). normal_(0, 1) writes what `randn` draws. Throws kInvalidArgument
/// for a negative std; otherwise as above.
std::vector<DTensor> normal_in_place(const Operation& operation, const BoundCall& call);

}  // namespace hyper_parallel
