#pragma once

// Variable reduce-scatter: every member holds all rows; the copies are reduced and member r keeps its share of the
// rows.
//
//   output_r = reduce over s of input_s[rows of r]      rows of r as in split_lists.h, input_splits the same on all
//
// On Gloo the terms are reduced in group order, ((x_0 + x_1) + x_2) + .., in the dtype of the input as torch's
// all_reduce does, so equal inputs give equal bits in every run (reduce_round.h); elsewhere the backend decides. The
// gradient of the sum is the variable all-gather.

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "hyper_parallel/torch/reduce_round.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel {

/// Reduces the members' `input`s of shape (sum(input_splits), ...) and returns this member's rows of the result, a new
/// contiguous tensor (input_splits[rank], ...). Not differentiable. NaN wins in max and min.
///
/// Throws, before any communication: kType for a null group, an undefined or a bool input, or max and min of complex
/// numbers; kInvalidArgument for an input without dims or a list of another length than the group, with a negative
/// entry, or whose sum is not the input's rows. Throws kFailedPrecondition when communication fails, and with
/// HYPER_PARALLEL_CHECK=1 on all ranks when the arguments differ between them.
at::Tensor variable_reduce_scatter(const at::Tensor& input, at::IntArrayRef input_splits, Reduction reduction,
                                   const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// The same for the sum, differentiable any number of times.
///
/// Example, 2 ranks: splits {1, 2} of [1 2 3] and [10 20 30] give [11] on rank 0 and [22 33] on rank 1.
at::Tensor differentiable_variable_reduce_scatter(const at::Tensor& input, at::IntArrayRef input_splits,
                                                  const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace hyper_parallel
