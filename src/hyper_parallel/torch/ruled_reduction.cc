#include "hyper_parallel/torch/ruled_reduction.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nll_loss_nd.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/extreme_ties.h"
#include "hyper_parallel/torch/operation_rules.h"
#include "hyper_parallel/torch/redistribute_local.h"
#include "hyper_parallel/torch/scalar_dtype.h"

namespace hyper_parallel {
namespace {

std::vector<int64_t> reduced_dims(const Rule& rule) {
  std::vector<int64_t> dims;
  const std::vector<int>& axes = rule.operands.front().axes;
  for (size_t dim = 0; dim < axes.size(); ++dim) {
    const bool reduced = axes[dim] != kNoAxis && rule.axes[static_cast<size_t>(axes[dim])].use == Axis::Use::kReduced;
    if (reduced) dims.push_back(static_cast<int64_t>(dim));
  }
  return dims;
}

/// How many cells of all ranks become one.
int64_t reduced_cells(const Rule& rule) {
  int64_t cells = 1;
  for (const Axis& axis : rule.axes) {
    if (axis.use == Axis::Use::kReduced) cells = checked_mul(cells, axis.cells);
  }
  return cells;
}

at::Tensor sum_of_cells(const PreparedCall& prepared, at::ScalarType dtype) {
  const Rule& rule = prepared.plan.rule;
  const bool keeps_dims = rule.results.front().shape.size() == rule.operands.front().shape.size();
  return at::sum(prepared.locals.front(), reduced_dims(rule), keeps_dims, dtype);
}

/// What torch divides the mean of a loss over classes by: the weights of the targets that are not ignored, or, of
/// probabilities, the number of samples. Each rank knows its own targets alone, so this communicates one number.
at::Tensor weight_of_targets(const PreparedCall& prepared) {
  const at::NoGradGuard constant;
  const std::vector<at::Tensor>& locals = prepared.locals;
  if (prepared.shapes[0] == prepared.shapes[1]) return at::full({}, reduced_cells(prepared.plan.rule), at::kDouble);
  const at::ScalarType dtype = wide_dtype(locals[0].scalar_type());
  // The loss of scores of -1 is the weight of its target.
  const at::Tensor scores = at::full({}, -1, locals[0].options().dtype(dtype)).expand(locals[0].sizes());
  const at::Tensor own = at::nll_loss_nd(
      scores, locals[1], locals.size() == 3 ? std::optional(locals[2].to(dtype)) : std::nullopt, at::Reduction::Sum,
      RuleArguments(prepared.call.arguments, prepared.shapes).integer("ignore_index"));
  const Layout& shares = prepared.plan.propagation.results.front();
  const Layout whole = gradient_layout(shares);
  return redistribute_local(own, {shares, whole, whole, Dims{}}, prepared.mesh);
}

/// What all losses together weigh.
at::Tensor weight_of_losses(const PreparedCall& prepared) {
  return prepared.operation.local == LocalCall::kClassLoss
             ? weight_of_targets(prepared)
             : at::full({}, reduced_cells(prepared.plan.rule), at::kDouble);
}

at::Scalar highest(at::ScalarType dtype) {
  if (dtype == at::kByte) return int64_t{255};
  return static_cast<int64_t>((uint64_t{1} << (8 * c10::elementSize(dtype) - 1)) - 1);
}

at::Scalar lowest(at::ScalarType dtype) {
  if (dtype == at::kByte) return int64_t{0};
  return -highest(dtype).toLong() - 1;
}

at::Scalar neutral(ReduceOp reduction, at::ScalarType dtype) {
  const bool is_max = reduction == ReduceOp::kMax;
  if (c10::isFloatingType(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return is_max ? -infinity : infinity;
  }
  return is_max ? lowest(dtype) : highest(dtype);
}

}  // namespace

bool is_cut(const CallPlan& plan) {
  const std::vector<Placement>& operand = plan.propagation.operands.front().layout.placements();
  const std::vector<Placement>& result = plan.propagation.results.front().placements();
  for (size_t dim = 0; dim < result.size(); ++dim) {
    if (is_partial(result[dim]) && !is_partial(operand[dim])) return true;
  }
  return false;
}

at::Tensor mean_of_parts(const PreparedCall& prepared) {
  const auto wanted = find_dtype(prepared.call.arguments).value_or(prepared.locals.front().scalar_type());
  HP_CHECK(c10::isFloatingType(wanted) || c10::isComplexType(wanted), kInvalidArgument,
           "operation 'mean' takes a floating or complex dtype, not ", c10::toString(wanted));
  return sum_of_cells(prepared, wide_dtype(wanted)).div(reduced_cells(prepared.plan.rule)).to(wanted);
}

bool takes_mean(const PreparedCall& prepared) {
  const RuleArguments arguments(prepared.call.arguments, prepared.shapes);
  return arguments.integer("reduction") == static_cast<int64_t>(at::Reduction::Mean);
}

at::Tensor mean_of_losses(const PreparedCall& prepared) {
  std::vector<at::Tensor> wide;
  at::ScalarType dtype = prepared.locals.front().scalar_type();
  for (const at::Tensor& local : prepared.locals) {
    const bool is_floating = c10::isFloatingType(local.scalar_type());
    if (is_floating) dtype = c10::promoteTypes(dtype, local.scalar_type());
    wide.push_back(is_floating ? local.to(wide_dtype(local.scalar_type())) : local);
  }
  HP_CHECK(c10::isFloatingType(dtype) || c10::isComplexType(dtype), kInvalidArgument, "operation '",
           prepared.operation.name, "' takes a mean of a floating or complex dtype, not of ", c10::toString(dtype));
  const at::Tensor weight = weight_of_losses(prepared);
  torch::jit::Stack stack = stack_on(prepared.operation, prepared.call, wide);
  for (size_t i = 0; i < stack.size(); ++i) {
    const bool is_reduction = prepared.call.arguments[i].parameter->name == "reduction";
    if (is_reduction) stack[i] = static_cast<int64_t>(at::Reduction::Sum);
  }
  prepared.call.overload->op.callBoxed(stack);
  return std::move(stack.front()).toTensor().div(weight).to(dtype);
}

bool has_no_cells(const PreparedCall& prepared) {
  return std::ranges::any_of(reduced_dims(prepared.plan.rule),
                             [&](int64_t dim) { return prepared.locals.front().size(dim) == 0; });
}

torch::jit::Stack neutral_result(const PreparedCall& prepared) {
  const at::Tensor& local = prepared.locals.front();
  std::vector<int64_t> sizes = local.sizes().vec();
  for (const int64_t dim : reduced_dims(prepared.plan.rule)) {
    if (sizes[static_cast<size_t>(dim)] == 0) sizes[static_cast<size_t>(dim)] = 1;
  }
  const at::Tensor cells = at::full(sizes, neutral(prepared.plan.rule.reduction, local.scalar_type()), local.options());
  // The operation itself, so that a write to its result is found out here as on the other ranks; the sum of nothing
  // ties it to the graph.
  return call_on(prepared.operation, prepared.call, {cells.add(at::sum(local, local.scalar_type()))});
}

at::Tensor ties_of_extreme(const PreparedCall& prepared, const at::Tensor& share) {
  // As torch shares the gradient of a NaN: amax and amin make all gradients NaN, max and min go to the NaNs.
  const std::string_view name = prepared.operation.name;
  const NanTies nans = name == "max" || name == "min" ? NanTies::kAll : NanTies::kNone;
  return count_ties(prepared.locals.front(), share, reduced_dims(prepared.plan.rule), nans);
}

void check_neutral(const Operation& operation, at::ScalarType dtype) {
  HP_CHECK(c10::isFloatingType(dtype) || c10::isIntegralType(dtype, /*includeBool=*/false), kUnimplemented,
           "operation '", operation.name, "' of a cut dim takes a floating or integer dtype, not ",
           c10::toString(dtype));
}

}  // namespace hyper_parallel
