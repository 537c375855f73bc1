#pragma once

// Runs an operation on normal layouts by its rule: operands are redistributed as `propagate` says, the operation runs
// on the local parts, the results are laid out as it says. Differentiable, with the gradients of the unsharded program.

#include <vector>

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// One DTensor per result. An in-place form returns the operand that it wrote.
///
/// Every rank of the mesh must call alike. Throws on every rank before anything is communicated: kUnimplemented for a
/// ragged operand; kType for a plain tensor of more than one element; as the rule, `propagate` and torch itself do.
std::vector<DTensor> call_ruled(const Operation& operation, const BoundCall& call);

/// Throws what `call_ruled` throws before it computes or communicates.
void check_ruled(const Operation& operation, const BoundCall& call);

/// Whether the operands of an elementwise operation lie so differently that they need a rule: none is ragged, and one
/// has another layout than `frame`, or another shape and is more than a single replicated element.
bool needs_rule(const BoundArguments& arguments, const DTensor& frame);

}  // namespace hyper_parallel
