#pragma once

// The simulator: runs a plan for every rank of the mesh in one process, on plain buffers.
//
// It obeys rank plans as an executor does, message by message, and checks what a network would not: that each message
// sent is received, with the same length, and that each target cell is written exactly once.

#include <map>
#include <vector>

#include "hyper_parallel/redistribute/plan.h"
#include "hyper_parallel/redistribute/rank_plan.h"

namespace hyper_parallel {

/// Global rank -> the rank's flat local storage.
using Shares = std::map<int64_t, std::vector<double>>;

/// The shares of a tensor with row-major `values` under `distribution`, one for each rank of its mesh. On Partial dims
/// the first member of the group holds the value (max and min: every member; avg: the value times the group's size on
/// the first) and the others the identity.
Shares distribute_values(const Distribution& distribution, const std::vector<double>& values);

/// Runs `plan` on `source` and returns the target shares. Throws kInternal where a plan is inconsistent,
/// kInvalidArgument where there is not one share for each rank of the mesh or a share has the wrong length.
Shares simulate(const Plan& plan, const Shares& source);

}  // namespace hyper_parallel
