#pragma once

// The operations on normal layouts that are no cell-by-cell ones, as C++ functions: torch's names, arguments and
// meaning, thin over `call`, by which every other operation of the table is reached. `docs/operations.md` says how
// operands and results lie. All throw as `call`.
//
// Example: DTensor scores = softmax(matmul(query, transpose(key, -2, -1)), -1);

#include <optional>
#include <string_view>
#include <vector>

#include "hyper_parallel/torch/operation_call.h"

namespace hyper_parallel {

using Sizes = std::vector<int64_t>;

/// Dims that are contracted and lie cut give Partial(sum).
DTensor matmul(const DTensor& a, const Argument& b);
DTensor linear(const DTensor& x, const Argument& weight, const Argument& bias = {});
DTensor einsum(std::string_view equation, const std::vector<DTensor>& operands);

/// No dims: all. Keeping them leaves size 1. Reduced dims that lie cut give Partial.
DTensor sum(const DTensor& x, const Sizes& dims = {});
DTensor mean(const DTensor& x, const Sizes& dims = {});
DTensor amax(const DTensor& x, const Sizes& dims = {});
DTensor amin(const DTensor& x, const Sizes& dims = {});

DTensor softmax(const DTensor& x, int64_t dim);
DTensor log_softmax(const DTensor& x, int64_t dim);
DTensor layer_norm(const DTensor& x, const Sizes& normalized_shape, const Argument& weight = {},
                   const Argument& bias = {}, double eps = 1e-5);
/// Without dropout.
DTensor scaled_dot_product_attention(const DTensor& query, const Argument& key, const Argument& value);

/// Means over all samples.
DTensor cross_entropy_loss(const DTensor& scores, const Argument& target);
DTensor mse_loss(const DTensor& x, const Argument& target);

DTensor view(const DTensor& x, const Sizes& shape);
DTensor reshape(const DTensor& x, const Sizes& shape);
DTensor permute(const DTensor& x, const Sizes& dims);
DTensor transpose(const DTensor& x, int64_t dim0, int64_t dim1);
DTensor unsqueeze(const DTensor& x, int64_t dim);
DTensor expand(const DTensor& x, const Sizes& sizes);
DTensor cat(const std::vector<DTensor>& tensors, int64_t dim = 0);
DTensor stack(const std::vector<DTensor>& tensors, int64_t dim = 0);
std::vector<DTensor> split(const DTensor& x, int64_t size, int64_t dim = 0);
DTensor narrow(const DTensor& x, int64_t dim, int64_t start, int64_t length);
DTensor embedding(const DTensor& weight, const Argument& indices);

}  // namespace hyper_parallel
