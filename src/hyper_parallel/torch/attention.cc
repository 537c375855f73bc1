#include "hyper_parallel/torch/attention.h"

#include <cmath>
#include <limits>
#include <optional>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/redistribute/redistribution.h"
#include "hyper_parallel/torch/dropout.h"
#include "hyper_parallel/torch/factories.h"
#include "hyper_parallel/torch/operation_call.h"
#include "hyper_parallel/torch/operation_rules.h"
#include "hyper_parallel/torch/ruled_call.h"
#include "hyper_parallel/torch/ruled_operands.h"
#include "hyper_parallel/torch/scalar_dtype.h"

namespace hyper_parallel {
namespace {

constexpr double kNegativeInfinity = -std::numeric_limits<double>::infinity();

DTensor run(std::string_view name, std::initializer_list<Argument> arguments) {
  return call(name, arguments, {}).front();
}

/// True where a row must not look: behind its own column.
DTensor later_columns(const DTensor& scores) {
  const std::vector<int64_t> shape(scores.shape().end() - 2, scores.shape().end());
  const std::vector<Placement> replicated(scores.placements().size(), Replicate{});
  const at::TensorOptions options = at::TensorOptions().dtype(at::kBool).device(scores.local().device());
  return run("triu", {full(shape, true, scores.mesh(), replicated, options), 1});
}

/// Halves in float32, as torch's own kernels keep scores: they leave the range and digits of a half.
DTensor widened(const DTensor& tensor) {
  const at::ScalarType wide = wide_dtype(tensor.dtype());
  return wide == tensor.dtype() ? tensor : run("to", {tensor, wide});
}

/// Where the summed dim is cut: softmax and rounding do not commute with the sum.
DTensor reduced(const DTensor& tensor) { return tensor.redistribute(gradient_layout(tensor.layout()).placements()); }

void check_dtypes(const Operation& operation, const RuledOperands& operands) {
  const at::ScalarType dtype = operands[0].dtype();
  HP_CHECK(c10::isFloatingType(dtype) && operands[1].dtype() == dtype && operands[2].dtype() == dtype, kType,
           "operation '", operation.name, "': query, key and value have dtypes ", c10::toString(dtype), ", ",
           c10::toString(operands[1].dtype()), " and ", c10::toString(operands[2].dtype()),
           " but must have one floating dtype");
  if (operands.size() < 4) return;
  const at::ScalarType mask = operands[3].dtype();
  HP_CHECK(mask == at::kBool || mask == at::kFloat || mask == dtype, kType, "operation '", operation.name,
           "': attn_mask has dtype ", c10::toString(mask), " but must be Bool, Float or that of query, ",
           c10::toString(dtype));
}

DTensor masked(const DTensor& scores, const std::optional<DTensor>& mask, bool is_causal) {
  if (is_causal) return run("masked_fill", {scores, later_columns(scores), kNegativeInfinity});
  if (!mask) return scores;
  if (mask->dtype() != at::kBool) return run("add", {scores, widened(*mask)});
  return run("masked_fill", {scores, run("logical_not", {*mask}), kNegativeInfinity});
}

}  // namespace

std::vector<DTensor> attention_with_dropout(const Operation& operation, const BoundCall& call) {
  const RuleArguments arguments(call.arguments, {});
  const double dropped = arguments.number("dropout_p");
  HP_CHECK(dropped >= 0 && dropped <= 1, kInvalidArgument, "operation '", operation.name, "': dropout_p is ", dropped,
           " but must be in [0, 1]");
  if (dropped == 0) return call_ruled(operation, call);
  check_ruled(operation, call);  // raises for shapes that do not fit, pending operands and unlike meshes
  const RuledOperands operands(operation, call.arguments);
  check_dtypes(operation, operands);
  const bool is_causal = arguments.flag("is_causal");
  const bool has_mask = operands.size() == 4;
  HP_CHECK(!is_causal || !has_mask, kInvalidArgument, "operation '", operation.name,
           "': attn_mask must be None if is_causal is True");
  const at::ScalarType dtype = operands[0].dtype();
  const double width = static_cast<double>(operands[0].shape().back());
  const double scale = arguments.is_given("scale") ? arguments.number("scale") : 1 / std::sqrt(width);
  const DTensor keys = run("transpose", {widened(operands[1]), int64_t{-2}, int64_t{-1}});
  const DTensor scores = reduced(run("matmul", {run("mul", {widened(operands[0]), scale}), keys}));
  const DTensor shares = masked(scores, has_mask ? std::optional(operands[3]) : std::nullopt, is_causal);
  const DTensor weights = dropout(run("_safe_softmax", {shares, int64_t{-1}}), dropped, DropoutMode::kTraining);
  const DTensor result = run("matmul", {weights, widened(operands[2])});
  return {result.dtype() == dtype ? result : run("to", {reduced(result), dtype})};
}

}  // namespace hyper_parallel
