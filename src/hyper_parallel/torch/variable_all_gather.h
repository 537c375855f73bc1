#pragma once

// Variable all-gather: the members' rows, unequally many, concatenated in group order on every member.
//
//   output = concat(input_0, .., input_{n-1})          input_r has output_splits[r] rows
//
// Its gradient is the exact adjoint for the sum of all ranks' losses: the variable reduce-scatter (sum) of the incoming
// gradients. Every rank must run backward if any does.

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel {

/// Gathers the rows of all members of `group`.
///
/// `input` has shape (output_splits[rank], ...) and any strides; rows may be zero on some or all members.
/// `output_splits` counts the rows of dim 0 of every member and must be the same list on all of them. Returns a new
/// contiguous tensor (sum(output_splits), ...). Differentiable any number of times.
///
/// On Gloo each piece is received straight into its place in the output; other backends run their own uneven
/// all-gather.
///
/// Throws, before any communication: kType for a null group or an undefined input; kInvalidArgument for an input
/// without dims, a list of another length than the group, a negative entry, or an own entry that is not the input's
/// rows. Throws kFailedPrecondition when communication fails, and, with HYPER_PARALLEL_CHECK=1, on all ranks when
/// splits, dtype, row shape or requires_grad differ between them.
///
/// Example, 3 ranks: splits {2, 0, 4} of inputs [a b], [], [c d e f] give [a b c d e f] on all three.
at::Tensor differentiable_variable_all_gather(const at::Tensor& input, at::IntArrayRef output_splits,
                                              const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace hyper_parallel
