#include "examples/reshard_model/operation_forms.h"

#include <ATen/ATen.h>

#include <utility>

#include "hyper_parallel/torch/elementwise.h"

namespace hyper_parallel::examples {
namespace {

/// The same expression for plain and for distributed tensors.
template <typename Expression>
OperationForm form(std::string name, Domain domain, const Expression& expression) {
  return {std::move(name), domain, [expression](const at::Tensor& x, const at::Tensor& y) { return expression(x, y); },
          [expression](const DTensor& x, const DTensor& y) { return expression(x, y); }};
}

/// Unlike expressions, for what plain tensors spell otherwise.
template <typename Plain, typename Distributed>
OperationForm form(std::string name, Domain domain, const Plain& plain, const Distributed& distributed) {
  return {std::move(name), domain, plain, distributed};
}

using Forms = std::vector<OperationForm>;

// Torch's function and ours have one name; argument types choose.
#define UNARY(op, domain) form(#op, domain, [](const auto& x, const auto&) { return op(x); })
#define UNARY_IN_PLACE(op, domain)                                                        \
  form(                                                                                   \
      #op, domain, [](const at::Tensor& x, const at::Tensor&) { return x.clone().op(); }, \
      [](const DTensor& x, const DTensor&) { return op(clone(x)); })

void add_unary(Forms& forms) {
  using enum Domain;
  for (OperationForm& each :
       Forms{UNARY(abs, kAny), UNARY(absolute, kAny), UNARY(clone, kAny), UNARY(cos, kAny), UNARY(exp, kAny),
             UNARY(gelu, kAny), UNARY(isinf, kAny), UNARY(isnan, kAny), UNARY(log, kPositive), UNARY(neg, kAny),
             UNARY(negative, kAny), UNARY(relu, kAny), UNARY(rsqrt, kPositive), UNARY(sigmoid, kAny), UNARY(silu, kAny),
             UNARY(sin, kAny), UNARY(sqrt, kPositive), UNARY(square, kAny)}) {
    forms.push_back(std::move(each));
  }
  for (OperationForm& each :
       Forms{UNARY_IN_PLACE(abs_, kAny), UNARY_IN_PLACE(absolute_, kAny), UNARY_IN_PLACE(cos_, kAny),
             UNARY_IN_PLACE(exp_, kAny), UNARY_IN_PLACE(log_, kPositive), UNARY_IN_PLACE(neg_, kAny),
             UNARY_IN_PLACE(negative_, kAny), UNARY_IN_PLACE(relu_, kAny), UNARY_IN_PLACE(rsqrt_, kPositive),
             UNARY_IN_PLACE(sigmoid_, kAny), UNARY_IN_PLACE(sin_, kAny), UNARY_IN_PLACE(sqrt_, kPositive),
             UNARY_IN_PLACE(square_, kAny)}) {
    forms.push_back(std::move(each));
  }
  forms.push_back(form(
      "gelu tanh", kAny, [](const at::Tensor& x, const at::Tensor&) { return at::gelu(x, "tanh"); },
      [](const DTensor& x, const DTensor&) { return gelu(x, "tanh"); }));
  forms.push_back(form(
      "silu_", kAny,
      [](const at::Tensor& x, const at::Tensor&) {
        auto copy = x.clone();
        return at::silu_(copy);
      },
      [](const DTensor& x, const DTensor&) { return silu_(clone(x)); }));
}

#undef UNARY
#undef UNARY_IN_PLACE

// With a tensor, with a number, and both in place.
#define BINARY(op, domain)                                                            \
  form(#op " tensor", domain, [](const auto& x, const auto& y) { return op(x, y); }), \
      form(#op " number", domain, [](const auto& x, const auto&) { return op(x, 1.25); })
#define BINARY_IN_PLACE(op, domain)                                                                         \
  form(                                                                                                     \
      #op " tensor", domain, [](const at::Tensor& x, const at::Tensor& y) { return x.clone().op(y); },      \
      [](const DTensor& x, const DTensor& y) { return op(clone(x), y); }),                                  \
      form(                                                                                                 \
          #op " number", domain, [](const at::Tensor& x, const at::Tensor&) { return x.clone().op(1.25); }, \
          [](const DTensor& x, const DTensor&) { return op(clone(x), 1.25); })

void add_binary(Forms& forms) {
  using enum Domain;
  for (OperationForm& each :
       Forms{BINARY(add, kAny), BINARY(sub, kAny), BINARY(mul, kAny), BINARY(div, kAny), BINARY(true_divide, kAny),
             BINARY(pow, kPositive), BINARY_IN_PLACE(add_, kAny), BINARY_IN_PLACE(sub_, kAny),
             BINARY_IN_PLACE(mul_, kAny), BINARY_IN_PLACE(div_, kAny), BINARY_IN_PLACE(true_divide_, kAny),
             BINARY_IN_PLACE(pow_, kPositive)}) {
    forms.push_back(std::move(each));
  }
  forms.push_back(form(
      "real_div tensor", kAny, [](const at::Tensor& x, const at::Tensor& y) { return at::true_divide(x, y); },
      [](const DTensor& x, const DTensor& y) { return real_div(x, y); }));
  forms.push_back(form(
      "add alpha", kAny, [](const at::Tensor& x, const at::Tensor& y) { return at::add(x, y, 3); },
      [](const DTensor& x, const DTensor& y) { return add(x, y, 3); }));
  forms.push_back(form(
      "sub alpha", kAny, [](const at::Tensor& x, const at::Tensor& y) { return at::sub(x, y, 3); },
      [](const DTensor& x, const DTensor& y) { return sub(x, y, 3); }));
  forms.push_back(form(
      "div floor", kAny, [](const at::Tensor& x, const at::Tensor& y) { return at::div(x, y, "floor"); },
      [](const DTensor& x, const DTensor& y) { return div(x, y, "floor"); }));
}

#undef BINARY
#undef BINARY_IN_PLACE

void add_operators(Forms& forms) {
  using enum Domain;
  for (OperationForm& each :
       Forms{form("x + y", kAny, [](const auto& x, const auto& y) { return x + y; }),
             form("x - y", kAny, [](const auto& x, const auto& y) { return x - y; }),
             form("x * y", kAny, [](const auto& x, const auto& y) { return x * y; }),
             form("x / y", kAny, [](const auto& x, const auto& y) { return x / y; }),
             form("-x", kAny, [](const auto& x, const auto&) { return -x; }),
             form("2 + x", kAny, [](const auto& x, const auto&) { return at::Scalar(2) + x; }),
             form("2 - x", kAny, [](const auto& x, const auto&) { return at::Scalar(2) - x; }),
             form("2 * x", kAny, [](const auto& x, const auto&) { return at::Scalar(2) * x; }),
             form("2 / x", kPositive, [](const auto& x, const auto&) { return at::Scalar(2) / x; })}) {
    forms.push_back(std::move(each));
  }
  forms.push_back(form(
      "__rsub__ tensor", kAny, [](const at::Tensor& x, const at::Tensor& y) { return at::rsub(x, y); },
      [](const DTensor& x, const DTensor& y) { return call("__rsub__", {x, y}).front(); }));
  forms.push_back(form(
      "__rpow__ number", kAny, [](const at::Tensor& x, const at::Tensor&) { return at::pow(2.5, x); },
      [](const DTensor& x, const DTensor&) { return call("__rpow__", {x, 2.5}).front(); }));
}

}  // namespace

std::vector<OperationForm> operation_forms() {
  Forms forms;
  add_unary(forms);
  add_binary(forms);
  add_operators(forms);
  return forms;
}

}  // namespace hyper_parallel::examples
