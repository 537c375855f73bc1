#pragma once

// Products of tensors whose common dims are summed: einsum and what is written as one.

#include <optional>
#include <span>
#include <string_view>

#include "hyper_parallel/operations/rule.h"

namespace hyper_parallel {

/// One label per dim of each operand and of the result; dims of one label go along one axis, and a label that the
/// result lacks is summed. A dim of size 1 is broadcast to the others of its label. One factor may be Partial(sum) or
/// Partial(avg).
///
/// Throws kInvalidArgument: sizes of one label that are unlike, a result label that no operand has or that stands
/// twice. kUnimplemented: a label twice in one operand (a diagonal).
Rule contraction_rule(std::span<const Dims> shapes, std::span<const std::vector<int>> labels,
                      const std::vector<int>& result_labels);

/// torch.einsum of one or two operands: "ij,jk->ik"; without "->" the labels that stand once, in alphabetical order;
/// blanks do not count. Throws kInvalidArgument for text that is none or that does not fit the shapes; kUnimplemented
/// for "..." and a label twice in one operand.
Rule einsum_rule(std::string_view equation, std::span<const Dims> shapes);

/// torch.matmul, for operands of one dim or more: batch dims are broadcast.
Rule matmul_rule(const Dims& a, const Dims& b);

/// x (..., k) times the transposed weight (n, k) or (k,), plus bias (n,) or () if there is one.
Rule linear_rule(const Dims& x, const Dims& weight, const std::optional<Dims>& bias);

/// The rule with one more operand, added to the first result, at `position`: addmm's input. It broadcasts to the
/// result's shape; throws kInvalidArgument if it does not.
Rule with_addend(Rule rule, const Dims& shape, size_t position);

}  // namespace hyper_parallel
