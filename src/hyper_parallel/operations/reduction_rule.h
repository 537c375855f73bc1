#pragma once

// Operations that combine the cells along some dims, and operations that need some dims whole.

#include <optional>
#include <span>

#include "hyper_parallel/operations/rule.h"

namespace hyper_parallel {

enum class KeepDims { kNo, kYes };  // yes: a reduced dim stays, of size 1

/// The cells along `dims` (folded, each once) become one. With an `op` that combines results of parts the dims may be
/// cut and the result is Partial(op); without one they are needed whole. kSum keeps Partial(sum) and Partial(avg)
/// pending, kMax and kMin their own.
///
/// Throws kInvalidArgument for a max or min along a dim of no cells.
Rule reduction_rule(const Dims& shape, std::span<const int64_t> dims, KeepDims keep, std::optional<ReduceOp> op);

/// A result of the operand's shape, every dim of `whole` (folded) needed whole: softmax, cumsum, sort.
Rule along_rule(const Dims& shape, std::span<const int64_t> whole);

/// The same whose last `count` dims are whole, with further operands of just these dims (weight and bias of
/// layer_norm). Throws kInvalidArgument if `normalized` is not the end of `shape`.
Rule normalization_rule(const Dims& shape, const Dims& normalized, size_t parameters);

}  // namespace hyper_parallel
