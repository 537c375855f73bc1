#pragma once

// Scaled dot product attention. Without dropout torch's own kernel on this rank's batches, heads and rows, by a rule.
// With dropout by its definition, in operations that each have a rule, because the kernel would drop by the generator
// of each rank: softmax(query @ key^T * scale + mask), whose cells are dropped by their places in the whole tensor.
//
// Source of the formula: Vaswani et al., Attention Is All You Need, 2017, equation 1.

#include <vector>

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// torch.nn.functional.scaled_dot_product_attention: (query, key, value, attn_mask, dropout_p, is_causal, scale,
/// enable_gqa). A row that a mask leaves nothing of gives zeros. The scores, (..., L, S), are stored if dropout_p is
/// not 0.
///
/// Throws kInvalidArgument for a dropout_p outside [0, 1], a mask beside is_causal, and shapes that do not fit;
/// kUnimplemented for query and key with unlike heads.
std::vector<DTensor> attention_with_dropout(const Operation& operation, const BoundCall& call);

}  // namespace hyper_parallel
