#pragma once

// torch.nn.functional.scaled_dot_product_attention.

#include <optional>

#include "hyper_parallel/operations/rule.h"

namespace hyper_parallel {

enum class Causal { kNo, kYes };

/// query (..., L, E), key (..., S, E), value (..., S, V), mask broadcast to (..., L, S). Batch dims and heads may be
/// cut, and V; L too unless the mask is causal, which a rank could not place; E and S are needed whole.
///
/// Throws kInvalidArgument for shapes that do not fit; kUnimplemented for batch dims that are not equal.
Rule attention_rule(const Dims& query, const Dims& key, const Dims& value, const std::optional<Dims>& mask,
                    Causal causal);

}  // namespace hyper_parallel
