#include "hyper_parallel/torch/elementwise.h"

namespace hyper_parallel {
namespace {

DTensor one(std::string_view name, c10::ArrayRef<Argument> arguments, c10::ArrayRef<Keyword> keywords = {}) {
  return call(name, arguments, keywords).front();
}

/// Alone where rounding is none: division without rounding is another overload.
DTensor divide(std::string_view name, const DTensor& x, const Argument& other,
               std::optional<std::string_view> rounding_mode) {
  if (!rounding_mode) return one(name, {x, other});
  return one(name, {x, other}, {{"rounding_mode", *rounding_mode}});
}

}  // namespace

DTensor abs(const DTensor& x) { return one("abs", {x}); }
DTensor absolute(const DTensor& x) { return one("absolute", {x}); }
DTensor clone(const DTensor& x) { return one("clone", {x}); }
DTensor cos(const DTensor& x) { return one("cos", {x}); }
DTensor exp(const DTensor& x) { return one("exp", {x}); }
DTensor gelu(const DTensor& x, std::string_view approximate) {
  return one("gelu", {x}, {{"approximate", approximate}});
}
DTensor isinf(const DTensor& x) { return one("isinf", {x}); }
DTensor isnan(const DTensor& x) { return one("isnan", {x}); }
DTensor log(const DTensor& x) { return one("log", {x}); }
DTensor neg(const DTensor& x) { return one("neg", {x}); }
DTensor negative(const DTensor& x) { return one("negative", {x}); }
DTensor reciprocal(const DTensor& x) { return one("reciprocal", {x}); }
DTensor relu(const DTensor& x) { return one("relu", {x}); }
DTensor rsqrt(const DTensor& x) { return one("rsqrt", {x}); }
DTensor sigmoid(const DTensor& x) { return one("sigmoid", {x}); }
DTensor sign(const DTensor& x) { return one("sign", {x}); }
DTensor silu(const DTensor& x) { return one("silu", {x}); }
DTensor sin(const DTensor& x) { return one("sin", {x}); }
DTensor sqrt(const DTensor& x) { return one("sqrt", {x}); }
DTensor square(const DTensor& x) { return one("square", {x}); }

DTensor abs_(const DTensor& x) { return one("abs_", {x}); }
DTensor absolute_(const DTensor& x) { return one("absolute_", {x}); }
DTensor cos_(const DTensor& x) { return one("cos_", {x}); }
DTensor exp_(const DTensor& x) { return one("exp_", {x}); }
DTensor gelu_(const DTensor& x, std::string_view approximate) {
  return one("gelu_", {x}, {{"approximate", approximate}});
}
DTensor log_(const DTensor& x) { return one("log_", {x}); }
DTensor neg_(const DTensor& x) { return one("neg_", {x}); }
DTensor negative_(const DTensor& x) { return one("negative_", {x}); }
DTensor reciprocal_(const DTensor& x) { return one("reciprocal_", {x}); }
DTensor relu_(const DTensor& x) { return one("relu_", {x}); }
DTensor rsqrt_(const DTensor& x) { return one("rsqrt_", {x}); }
DTensor sigmoid_(const DTensor& x) { return one("sigmoid_", {x}); }
DTensor sign_(const DTensor& x) { return one("sign_", {x}); }
DTensor silu_(const DTensor& x) { return one("silu_", {x}); }
DTensor sin_(const DTensor& x) { return one("sin_", {x}); }
DTensor sqrt_(const DTensor& x) { return one("sqrt_", {x}); }
DTensor square_(const DTensor& x) { return one("square_", {x}); }

DTensor add(const DTensor& x, const Argument& other, const at::Scalar& alpha) {
  return one("add", {x, other}, {{"alpha", alpha}});
}
DTensor sub(const DTensor& x, const Argument& other, const at::Scalar& alpha) {
  return one("sub", {x, other}, {{"alpha", alpha}});
}
DTensor mul(const DTensor& x, const Argument& other) { return one("mul", {x, other}); }
DTensor div(const DTensor& x, const Argument& other, std::optional<std::string_view> rounding_mode) {
  return divide("div", x, other, rounding_mode);
}
DTensor true_divide(const DTensor& x, const Argument& other) { return one("true_divide", {x, other}); }
DTensor real_div(const DTensor& x, const Argument& other) { return one("real_div", {x, other}); }
DTensor pow(const DTensor& x, const Argument& exponent) { return one("pow", {x, exponent}); }
DTensor maximum(const DTensor& x, const Argument& other) { return one("maximum", {x, other}); }
DTensor minimum(const DTensor& x, const Argument& other) { return one("minimum", {x, other}); }

DTensor add_(const DTensor& x, const Argument& other, const at::Scalar& alpha) {
  return one("add_", {x, other}, {{"alpha", alpha}});
}
DTensor sub_(const DTensor& x, const Argument& other, const at::Scalar& alpha) {
  return one("sub_", {x, other}, {{"alpha", alpha}});
}
DTensor mul_(const DTensor& x, const Argument& other) { return one("mul_", {x, other}); }
DTensor div_(const DTensor& x, const Argument& other, std::optional<std::string_view> rounding_mode) {
  return divide("div_", x, other, rounding_mode);
}
DTensor true_divide_(const DTensor& x, const Argument& other) { return one("true_divide_", {x, other}); }
DTensor pow_(const DTensor& x, const Argument& exponent) { return one("pow_", {x, exponent}); }

DTensor radd(const DTensor& x, const Argument& other) { return one("radd", {x, other}); }
DTensor rsub(const DTensor& x, const Argument& other) { return one("rsub", {x, other}); }
DTensor rmul(const DTensor& x, const Argument& other) { return one("rmul", {x, other}); }
DTensor rdiv(const DTensor& x, const Argument& other) { return one("rdiv", {x, other}); }
DTensor rpow(const DTensor& x, const Argument& other) { return one("rpow", {x, other}); }

DTensor eq(const DTensor& x, const Argument& other) { return one("eq", {x, other}); }
DTensor ne(const DTensor& x, const Argument& other) { return one("ne", {x, other}); }
DTensor lt(const DTensor& x, const Argument& other) { return one("lt", {x, other}); }
DTensor le(const DTensor& x, const Argument& other) { return one("le", {x, other}); }
DTensor gt(const DTensor& x, const Argument& other) { return one("gt", {x, other}); }
DTensor ge(const DTensor& x, const Argument& other) { return one("ge", {x, other}); }

DTensor lerp(const DTensor& x, const Argument& end, const Argument& weight) { return one("lerp", {x, end, weight}); }
DTensor lerp_(const DTensor& x, const Argument& end, const Argument& weight) { return one("lerp_", {x, end, weight}); }
DTensor addcmul(const DTensor& x, const Argument& a, const Argument& b, const at::Scalar& value) {
  return one("addcmul", {x, a, b}, {{"value", value}});
}
DTensor addcmul_(const DTensor& x, const Argument& a, const Argument& b, const at::Scalar& value) {
  return one("addcmul_", {x, a, b}, {{"value", value}});
}
DTensor addcdiv(const DTensor& x, const Argument& a, const Argument& b, const at::Scalar& value) {
  return one("addcdiv", {x, a, b}, {{"value", value}});
}
DTensor addcdiv_(const DTensor& x, const Argument& a, const Argument& b, const at::Scalar& value) {
  return one("addcdiv_", {x, a, b}, {{"value", value}});
}
DTensor clamp(const DTensor& x, const Argument& min, const Argument& max) { return one("clamp", {x, min, max}); }
DTensor clamp_(const DTensor& x, const Argument& min, const Argument& max) { return one("clamp_", {x, min, max}); }
DTensor where(const DTensor& condition, const Argument& a, const Argument& b) {
  return one("where", {condition, a, b});
}

DTensor copy_(const DTensor& x, const Argument& source) { return one("copy_", {x, source}); }
DTensor zero_(const DTensor& x) { return one("zero_", {x}); }
DTensor fill_(const DTensor& x, const Argument& value) { return one("fill_", {x, value}); }
DTensor zeros_like(const DTensor& x) { return one("zeros_like", {x}); }
DTensor ones_like(const DTensor& x) { return one("ones_like", {x}); }
DTensor full_like(const DTensor& x, const at::Scalar& value) { return one("full_like", {x, value}); }
DTensor empty_like(const DTensor& x) { return one("empty_like", {x}); }
DTensor to(const DTensor& x, at::ScalarType dtype) { return one("to", {x, dtype}); }

}  // namespace hyper_parallel
