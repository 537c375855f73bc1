#pragma once

// Operations that show the same cells in another shape. Any reduction stays pending.

#include <span>

#include "hyper_parallel/operations/rule.h"

namespace hyper_parallel {

/// The shape that torch.Tensor.view(sizes) gives a tensor of `shape`: one size may be -1. Throws kInvalidArgument for
/// sizes that do not hold as many cells, a second -1, other negative sizes, or a -1 that any size would fit.
Dims view_shape(const Dims& shape, std::span<const int64_t> sizes);

/// The cells in row-major order, in another shape of as many. A dim that stays a dim of the same size goes along an
/// axis. Of dims that become others together the outermost ones with more than one cell do too; they must be cut
/// evenly, because 5 rows over 2 ranks are no whole number of rows of another length.
Rule view_rule(const Dims& shape, const Dims& new_shape);

/// Dim i of the result is dim `order[i]` (folded) of the operand. Throws kInvalidArgument if `order` is no permutation.
Rule permutation_rule(const Dims& shape, std::span<const int64_t> order);

/// The shape that torch.Tensor.expand(sizes) gives: -1 keeps a size. Throws kInvalidArgument for sizes that are fewer
/// than dims, negative otherwise, or unlike where a dim has not one cell.
Dims expanded_shape(const Dims& shape, std::span<const int64_t> sizes);

/// Dims of one cell repeated, and dims put in front.
Rule expand_rule(const Dims& shape, const Dims& new_shape);

}  // namespace hyper_parallel
