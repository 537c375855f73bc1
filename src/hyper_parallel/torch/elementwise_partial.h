#pragma once

// Which operations may run on the shares of a tensor whose reduction is pending (Partial).
//
// op(reduce(shares)) == reduce(op(shares)) must hold, up to rounding, for all shares. What does not is refused: an
// operation on shares that does not commute gives wrong numbers without a word. See `PartialRule` for what is let
// through.

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// Throws kInvalidArgument, naming operation, placement and argument, unless the operation commutes with every pending
/// reduction of its operands. Returns at once if no operand is Partial.
void check_commutes(const Operation& operation, const BoundArguments& arguments);

}  // namespace hyper_parallel
