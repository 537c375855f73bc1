#pragma once

// Operations that put tensors together along a dim, and that take one apart or some of its cells. The dim is needed
// whole; the others are cut alike. Any reduction stays pending.

#include <span>

#include "hyper_parallel/operations/rule.h"

namespace hyper_parallel {

/// Tensors end to end along `dim` (folded). Throws kInvalidArgument for no tensor, or shapes that differ elsewhere.
Rule cat_rule(std::span<const Dims> shapes, int64_t dim);

/// Tensors of one shape along a new dim `dim` (folded to one dim more). Throws kInvalidArgument for no tensor or unlike
/// shapes.
Rule stack_rule(std::span<const Dims> shapes, int64_t dim);

/// Results that are pieces along `dim`: as many as `sizes`, each of that many cells along it.
Rule split_rule(const Dims& shape, int64_t dim, std::span<const int64_t> sizes);

/// One result without `dim`: the cells at one place along it.
Rule select_rule(const Dims& shape, int64_t dim);

/// torch.gather: the result has the index's shape. A dim other than `dim` is cut alike where the index has as many
/// cells as the operand.
Rule gather_rule(const Dims& shape, const Dims& index, int64_t dim);

/// torch.index_select: the result has as many cells along `dim` as the 1-D index.
Rule index_select_rule(const Dims& shape, const Dims& index, int64_t dim);

/// Rows of a table (rows, columns) by an index of any shape: the result is the index's shape and columns.
Rule embedding_rule(const Dims& table, const Dims& index);

}  // namespace hyper_parallel
