#pragma once

// The elementwise operations on DTensors as C++ functions and operators: torch's names and meaning, thin over `call`.
//
// Operands: `x` is a DTensor; an Argument may be a DTensor, a number, or a plain tensor of one element, as
// `elementwise_operands.h` says. Functions with '_' behind change x and return it. All communicate nothing, give a
// result laid out as the first ragged operand, and throw as `call`. The _foreach forms have no function:
// call("_foreach_add_", ...).
//
// Example: DTensor y = relu(x * 2 + bias);  y -= 1;  lerp_(average, gradient, 0.1);

#include <string_view>

#include "hyper_parallel/torch/operation_call.h"

namespace hyper_parallel {

DTensor abs(const DTensor& x);
DTensor absolute(const DTensor& x);
DTensor clone(const DTensor& x);
DTensor cos(const DTensor& x);
DTensor exp(const DTensor& x);
/// `approximate` is "none" or "tanh".
DTensor gelu(const DTensor& x, std::string_view approximate = "none");
DTensor isinf(const DTensor& x);
DTensor isnan(const DTensor& x);
DTensor log(const DTensor& x);
DTensor neg(const DTensor& x);
DTensor negative(const DTensor& x);
DTensor reciprocal(const DTensor& x);
DTensor relu(const DTensor& x);
DTensor rsqrt(const DTensor& x);
DTensor sigmoid(const DTensor& x);
DTensor sign(const DTensor& x);
DTensor silu(const DTensor& x);
DTensor sin(const DTensor& x);
DTensor sqrt(const DTensor& x);
DTensor square(const DTensor& x);

DTensor abs_(const DTensor& x);
DTensor absolute_(const DTensor& x);
DTensor cos_(const DTensor& x);
DTensor exp_(const DTensor& x);
DTensor gelu_(const DTensor& x, std::string_view approximate = "none");
DTensor log_(const DTensor& x);
DTensor neg_(const DTensor& x);
DTensor negative_(const DTensor& x);
DTensor reciprocal_(const DTensor& x);
DTensor relu_(const DTensor& x);
DTensor rsqrt_(const DTensor& x);
DTensor sigmoid_(const DTensor& x);
DTensor sign_(const DTensor& x);
DTensor silu_(const DTensor& x);
DTensor sin_(const DTensor& x);
DTensor sqrt_(const DTensor& x);
DTensor square_(const DTensor& x);

/// x + alpha * other.
DTensor add(const DTensor& x, const Argument& other, const at::Scalar& alpha = 1);
/// x - alpha * other.
DTensor sub(const DTensor& x, const Argument& other, const at::Scalar& alpha = 1);
DTensor mul(const DTensor& x, const Argument& other);
/// x / other; `rounding_mode` is none, "trunc" or "floor".
DTensor div(const DTensor& x, const Argument& other, std::optional<std::string_view> rounding_mode = std::nullopt);
DTensor true_divide(const DTensor& x, const Argument& other);
DTensor real_div(const DTensor& x, const Argument& other);
/// x to the power `exponent`.
DTensor pow(const DTensor& x, const Argument& exponent);
DTensor maximum(const DTensor& x, const Argument& other);
DTensor minimum(const DTensor& x, const Argument& other);

DTensor add_(const DTensor& x, const Argument& other, const at::Scalar& alpha = 1);
DTensor sub_(const DTensor& x, const Argument& other, const at::Scalar& alpha = 1);
DTensor mul_(const DTensor& x, const Argument& other);
DTensor div_(const DTensor& x, const Argument& other, std::optional<std::string_view> rounding_mode = std::nullopt);
DTensor true_divide_(const DTensor& x, const Argument& other);
DTensor pow_(const DTensor& x, const Argument& exponent);

/// other + x, other - x, other * x, other / x, and other to the power x.
DTensor radd(const DTensor& x, const Argument& other);
DTensor rsub(const DTensor& x, const Argument& other);
DTensor rmul(const DTensor& x, const Argument& other);
DTensor rdiv(const DTensor& x, const Argument& other);
DTensor rpow(const DTensor& x, const Argument& other);

/// Comparisons give bool DTensors.
DTensor eq(const DTensor& x, const Argument& other);
DTensor ne(const DTensor& x, const Argument& other);
DTensor lt(const DTensor& x, const Argument& other);
DTensor le(const DTensor& x, const Argument& other);
DTensor gt(const DTensor& x, const Argument& other);
DTensor ge(const DTensor& x, const Argument& other);

/// x + weight * (end - x).
DTensor lerp(const DTensor& x, const Argument& end, const Argument& weight);
DTensor lerp_(const DTensor& x, const Argument& end, const Argument& weight);
/// x + value * a * b.
DTensor addcmul(const DTensor& x, const Argument& a, const Argument& b, const at::Scalar& value = 1);
DTensor addcmul_(const DTensor& x, const Argument& a, const Argument& b, const at::Scalar& value = 1);
/// x + value * a / b.
DTensor addcdiv(const DTensor& x, const Argument& a, const Argument& b, const at::Scalar& value = 1);
DTensor addcdiv_(const DTensor& x, const Argument& a, const Argument& b, const at::Scalar& value = 1);
/// min and max are both numbers or both tensors; one may be none.
DTensor clamp(const DTensor& x, const Argument& min, const Argument& max = {});
DTensor clamp_(const DTensor& x, const Argument& min, const Argument& max = {});
/// a where `condition`, a bool DTensor, is true, else b.
DTensor where(const DTensor& condition, const Argument& a, const Argument& b);

/// Writes the values of `source` into x, cast to its dtype.
DTensor copy_(const DTensor& x, const Argument& source);
DTensor zero_(const DTensor& x);
/// `value` is a number or a tensor of no dims.
DTensor fill_(const DTensor& x, const Argument& value);
DTensor zeros_like(const DTensor& x);
DTensor ones_like(const DTensor& x);
DTensor full_like(const DTensor& x, const at::Scalar& value);
/// Uninitialized.
DTensor empty_like(const DTensor& x);
/// x itself if it has the dtype.
DTensor to(const DTensor& x, at::ScalarType dtype);

inline DTensor operator-(const DTensor& x) { return neg(x); }
inline DTensor operator+(const DTensor& x, const Argument& other) { return add(x, other); }
inline DTensor operator-(const DTensor& x, const Argument& other) { return sub(x, other); }
inline DTensor operator*(const DTensor& x, const Argument& other) { return mul(x, other); }
inline DTensor operator/(const DTensor& x, const Argument& other) { return div(x, other); }
/// A number in front. With a plain tensor in front: rsub(x, tensor).
inline DTensor operator+(const at::Scalar& number, const DTensor& x) { return radd(x, number); }
inline DTensor operator-(const at::Scalar& number, const DTensor& x) { return rsub(x, number); }
inline DTensor operator*(const at::Scalar& number, const DTensor& x) { return rmul(x, number); }
inline DTensor operator/(const at::Scalar& number, const DTensor& x) { return rdiv(x, number); }
inline DTensor operator+=(const DTensor& x, const Argument& other) { return add_(x, other); }
inline DTensor operator-=(const DTensor& x, const Argument& other) { return sub_(x, other); }
inline DTensor operator*=(const DTensor& x, const Argument& other) { return mul_(x, other); }
inline DTensor operator/=(const DTensor& x, const Argument& other) { return div_(x, other); }

}  // namespace hyper_parallel
