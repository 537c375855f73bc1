#include "hyper_parallel/torch/attention.h"

#include <cmath>
#include <limits>
#include <optional>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/dropout.h"
#include "hyper_parallel/torch/factories.h"
#include "hyper_parallel/torch/operation_call.h"
#include "hyper_parallel/torch/operation_rules.h"
#include "hyper_parallel/torch/ruled_call.h"
#include "hyper_parallel/torch/ruled_operands.h"

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

DTensor masked(const DTensor& scores, const std::optional<DTensor>& mask, bool is_causal) {
  if (is_causal) return run("masked_fill", {scores, later_columns(scores), kNegativeInfinity});
  if (!mask) return scores;
  if (mask->dtype() != at::kBool) return run("add", {scores, *mask});
  return run("masked_fill", {scores, run("logical_not", {*mask}), kNegativeInfinity});
}

}  // namespace

std::vector<DTensor> attention_with_dropout(const Operation& operation, const BoundCall& call) {
  const RuledOperands operands(operation, call.arguments);
  const RuleArguments arguments(call.arguments, operands.shapes());
  const double dropped = arguments.number("dropout_p");
  HP_CHECK(dropped >= 0 && dropped <= 1, kInvalidArgument, "operation '", operation.name, "': dropout_p is ", dropped,
           " but must be in [0, 1]");
  if (dropped == 0) return call_ruled(operation, call);
  operation.rule(arguments);  // raises for shapes that do not fit
  const bool is_causal = arguments.flag("is_causal");
  const bool has_mask = operands.size() == 4;
  HP_CHECK(!is_causal || !has_mask, kInvalidArgument, "operation '", operation.name,
           "': attn_mask must be None if is_causal is True");
  const DTensor& query = operands[0];
  const double width = static_cast<double>(query.shape().back());
  const double scale = arguments.is_given("scale") ? arguments.number("scale") : 1 / std::sqrt(width);
  const DTensor scores =
      run("matmul", {run("mul", {query, scale}), run("transpose", {operands[1], int64_t{-2}, int64_t{-1}})});
  const DTensor shares = masked(scores, has_mask ? std::optional(operands[3]) : std::nullopt, is_causal);
  const DTensor weights = dropout(run("_safe_softmax", {shares, int64_t{-1}}), dropped, DropoutMode::kTraining);
  return {run("matmul", {weights, operands[2]})};
}

}  // namespace hyper_parallel
