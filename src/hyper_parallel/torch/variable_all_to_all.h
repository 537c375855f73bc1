#pragma once

// Variable all-to-all: member s sends input_splits_s[r] of its rows to member r, which keeps them in the order of s.
//
//   output_r = concat over s of input_s[rows for r]     output_splits_r[s] == input_splits_s[r]
//
// Its gradient is the reverse all-to-all, with the two lists exchanged: the exact adjoint for the sum of all ranks'
// losses. Every rank must run backward if any does.

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel {

/// Exchanges rows between all members of `group`.
///
/// `input` has shape (sum(input_splits), ...) and any strides; both lists count rows of dim 0 per member, zero
/// included. Returns a new contiguous tensor (sum(output_splits), ...). Differentiable any number of times.
///
/// On Gloo each piece is received straight into its place in the output; other backends run their own all-to-all.
///
/// Throws, before any communication: kType for a null group or an undefined input; kInvalidArgument for an input
/// without dims, a list of another length than the group, a negative entry, input_splits that do not sum to the input's
/// rows, or own entries of the two lists that differ. Throws kFailedPrecondition when communication fails, and, with
/// HYPER_PARALLEL_CHECK=1, on all ranks when two ranks' lists do not match or dtype, row shape or requires_grad differ.
///
/// Example, 2 ranks: inputs [a b c] with input_splits {1, 2} and [d] with {0, 1} give [a] and [b c d].
at::Tensor differentiable_all_to_all_single(const at::Tensor& input, at::IntArrayRef input_splits,
                                            at::IntArrayRef output_splits,
                                            const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace hyper_parallel
