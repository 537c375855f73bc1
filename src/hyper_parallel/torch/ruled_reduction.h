#pragma once

// Ruled reductions whose reduced dims are cut: what a rank gives of its own cells is a share, and where the operation
// itself would not give one (a mean, the extreme of no cells) it is made here.

#include <ATen/core/Tensor.h>

#include "hyper_parallel/torch/ruled_local.h"

namespace hyper_parallel {

/// Whether a reduced axis is cut, so that the results are shares where the operands are not.
bool is_cut(const CallPlan& plan);

/// This rank's share of the mean.
at::Tensor mean_of_parts(const PreparedCall& prepared);

/// Whether a loss is called with the reduction "mean".
bool takes_mean(const PreparedCall& prepared);
/// This rank's share of the mean of all losses. A loss over classes communicates one number for it.
at::Tensor mean_of_losses(const PreparedCall& prepared);

/// Whether this rank has nothing along a reduced dim.
bool has_no_cells(const PreparedCall& prepared);
/// Of a part without cells the value that any other one replaces, as the dispatcher gives results.
torch::jit::Stack neutral_result(const PreparedCall& prepared);
/// How many cells of this rank have the value of `share`, what it gives to a max or min. See `extreme_ties.h`.
at::Tensor ties_of_extreme(const PreparedCall& prepared, const at::Tensor& share);
/// Throws kUnimplemented if `dtype` has no such value: a rank that has cells would not find that.
void check_neutral(const Operation& operation, at::ScalarType dtype);

}  // namespace hyper_parallel
