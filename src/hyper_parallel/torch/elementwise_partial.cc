#include "hyper_parallel/torch/elementwise_partial.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

/// Sum and avg are linear in the shares; max and min are not.
bool is_linear(const DTensor& tensor) {
  return std::ranges::none_of(tensor.placements(), [](const Placement& placement) {
    const auto* partial = std::get_if<Partial>(&placement);
    return partial != nullptr && (partial->op == ReduceOp::kMax || partial->op == ReduceOp::kMin);
  });
}

/// Every tensor operand is a DTensor of the layout and dtype of `tensor`.
bool all_alike(const BoundArguments& arguments, const DTensor& tensor) {
  return std::ranges::all_of(arguments, [&](const BoundArgument& argument) {
    if (argument.value == nullptr) return true;
    if (argument.value->plain_tensor() != nullptr) return false;
    const DTensor* operand = argument.value->dtensor();
    return operand == nullptr || (operand->layout() == tensor.layout() && operand->dtype() == tensor.dtype());
  });
}

bool is_finite(const at::Scalar& number) { return !number.isComplex() && std::isfinite(number.toDouble()); }

/// Sums of like shares: both operands are tensors, and what scales the second (alpha) is a finite number.
bool is_sum(const BoundArguments& arguments, const DTensor& tensor) {
  const Argument* other = find_argument(arguments, "other");
  if (other == nullptr || other->dtensor() == nullptr) return false;
  const Argument* alpha = find_argument(arguments, "alpha");
  return all_alike(arguments, tensor) && (alpha == nullptr || is_finite(*alpha->number()));
}

const at::Scalar* factor_of(const BoundArguments& arguments) {
  for (const std::string_view name : {"other", "scalar", "scalars"}) {
    const Argument* factor = find_argument(arguments, name);
    if (factor != nullptr && factor->number() != nullptr) return factor->number();
  }
  return nullptr;
}

bool is_division(const Operation& operation) { return operation.name.find("div") != std::string::npos; }

/// A number that keeps the dtype, so that no share is rounded or wrapped otherwise than their sum, and that makes no
/// infinity of a share: infinities of unlike sign add up to NaN.
bool is_scaling(const Operation& operation, const BoundArguments& arguments, const DTensor& tensor) {
  const at::Scalar* factor = factor_of(arguments);
  if (factor == nullptr || !is_finite(*factor) || find_argument(arguments, "rounding_mode") != nullptr) return false;
  const bool floating = c10::isFloatingType(tensor.dtype()) || c10::isComplexType(tensor.dtype());
  if (is_division(operation)) return floating && factor->toDouble() != 0;
  return floating || (factor->isIntegral(true) && tensor.dtype() != at::kBool);
}

bool is_widening(const BoundArguments& arguments, const DTensor& tensor) {
  const std::optional<at::ScalarType> dtype = find_dtype(arguments);
  if (!dtype) return false;
  const at::ScalarType to = *dtype;
  return to == tensor.dtype() || (c10::isFloatingType(tensor.dtype()) && c10::isFloatingType(to) &&
                                  c10::promoteTypes(tensor.dtype(), to) == to);
}

bool commutes(const Operation& operation, const BoundArguments& arguments, const DTensor& tensor) {
  switch (operation.partial) {
    case PartialRule::kNever:
      return false;
    case PartialRule::kIdentity:
      return all_alike(arguments, tensor);
    case PartialRule::kAnyValue:
      return true;
    case PartialRule::kNegate:
      return is_linear(tensor);
    case PartialRule::kSum:
      return is_linear(tensor) && is_sum(arguments, tensor);
    case PartialRule::kScale:
      return is_linear(tensor) && is_scaling(operation, arguments, tensor);
    case PartialRule::kWiden:
      return is_widening(arguments, tensor);
  }
  return false;
}

}  // namespace

void check_commutes(const Operation& operation, const BoundArguments& arguments) {
  for (const BoundArgument& argument : arguments) {
    const DTensor* tensor = argument.value == nullptr ? nullptr : argument.value->dtensor();
    if (tensor == nullptr || !tensor->layout().has_partial()) continue;
    HP_CHECK(commutes(operation, arguments, *tensor), kInvalidArgument, "operation '", operation.name,
             "' with these arguments does not commute with the pending reduction of argument '",
             argument.parameter->name, "', whose placements are ", short_text(tensor->placements()),
             "; redistribute it to Replicate() first");
  }
}

}  // namespace hyper_parallel
