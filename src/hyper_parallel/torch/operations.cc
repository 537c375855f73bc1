#include "hyper_parallel/torch/operations.h"

namespace hyper_parallel {
namespace {

DTensor one(std::string_view name, c10::ArrayRef<Argument> arguments) { return call(name, arguments).front(); }

}  // namespace

DTensor matmul(const DTensor& a, const Argument& b) { return one("matmul", {a, b}); }
DTensor linear(const DTensor& x, const Argument& weight, const Argument& bias) {
  return one("linear", {x, weight, bias});
}
DTensor einsum(std::string_view equation, const std::vector<DTensor>& operands) {
  return one("einsum", {equation, Argument::list(operands)});
}

DTensor sum(const DTensor& x, const Sizes& dims) { return one("sum", {x, Argument::list(dims)}); }
DTensor mean(const DTensor& x, const Sizes& dims) { return one("mean", {x, Argument::list(dims)}); }
DTensor amax(const DTensor& x, const Sizes& dims) { return one("amax", {x, Argument::list(dims)}); }
DTensor amin(const DTensor& x, const Sizes& dims) { return one("amin", {x, Argument::list(dims)}); }

DTensor softmax(const DTensor& x, int64_t dim) { return one("softmax", {x, dim}); }
DTensor log_softmax(const DTensor& x, int64_t dim) { return one("log_softmax", {x, dim}); }
DTensor layer_norm(const DTensor& x, const Sizes& normalized_shape, const Argument& weight, const Argument& bias,
                   double eps) {
  return one("layer_norm", {x, Argument::list(normalized_shape), weight, bias, eps});
}
DTensor scaled_dot_product_attention(const DTensor& query, const Argument& key, const Argument& value) {
  return one("scaled_dot_product_attention", {query, key, value});
}

DTensor cross_entropy_loss(const DTensor& scores, const Argument& target) {
  return one("cross_entropy_loss", {scores, target});
}
DTensor mse_loss(const DTensor& x, const Argument& target) { return one("mse_loss", {x, target}); }

DTensor view(const DTensor& x, const Sizes& shape) { return one("view", {x, Argument::list(shape)}); }
DTensor reshape(const DTensor& x, const Sizes& shape) { return one("reshape", {x, Argument::list(shape)}); }
DTensor permute(const DTensor& x, const Sizes& dims) { return one("permute", {x, Argument::list(dims)}); }
DTensor transpose(const DTensor& x, int64_t dim0, int64_t dim1) { return one("transpose", {x, dim0, dim1}); }
DTensor unsqueeze(const DTensor& x, int64_t dim) { return one("unsqueeze", {x, dim}); }
DTensor expand(const DTensor& x, const Sizes& sizes) { return one("expand", {x, Argument::list(sizes)}); }
DTensor cat(const std::vector<DTensor>& tensors, int64_t dim) { return one("cat", {Argument::list(tensors), dim}); }
DTensor stack(const std::vector<DTensor>& tensors, int64_t dim) { return one("stack", {Argument::list(tensors), dim}); }
std::vector<DTensor> split(const DTensor& x, int64_t size, int64_t dim) { return call("split", {x, size, dim}); }
DTensor narrow(const DTensor& x, int64_t dim, int64_t start, int64_t length) {
  return one("narrow", {x, dim, start, length});
}
DTensor embedding(const DTensor& weight, const Argument& indices) { return one("embedding", {weight, indices}); }

}  // namespace hyper_parallel
