#include "hyper_parallel/operations/reduction_rule.h"

#include <algorithm>
#include <numeric>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

bool holds(std::span<const int64_t> dims, size_t dim) {
  return std::ranges::find(dims, static_cast<int64_t>(dim)) != dims.end();
}

bool is_extreme(std::optional<ReduceOp> op) { return op == ReduceOp::kMax || op == ReduceOp::kMin; }

Pending pending_beside(std::optional<ReduceOp> op) {
  if (!op) return {};
  return {Pending::Carriers::kEvery, *op == ReduceOp::kSum ? kLinearOps : ReduceOps{*op}};
}

}  // namespace

Rule reduction_rule(const Dims& shape, std::span<const int64_t> dims, KeepDims keep, std::optional<ReduceOp> op) {
  Rule rule;
  rule.reduction = op.value_or(ReduceOp::kSum);
  rule.pending = pending_beside(op);
  Operand operand{shape, {}};
  std::vector<int64_t> result_shape;
  Operand result;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const bool reduced = holds(dims, dim);
    HP_CHECK(!reduced || shape[dim] > 0 || !is_extreme(op), kInvalidArgument, "a tensor of shape ", tuple_text(shape),
             " has no cell along dim ", dim, ", of which none can be taken");
    const bool whole = reduced && !op;
    operand.axes.push_back(whole ? kNoAxis : static_cast<int>(rule.axes.size()));
    if (!whole) rule.axes.push_back({shape[dim], reduced ? Axis::Use::kReduced : Axis::Use::kParallel});
    if (reduced && keep == KeepDims::kNo) continue;
    result_shape.push_back(reduced ? 1 : shape[dim]);
    result.axes.push_back(reduced ? kNoAxis : operand.axes.back());
  }
  result.shape = Dims(result_shape);
  rule.operands = {std::move(operand)};
  rule.results = {std::move(result)};
  return rule;
}

Rule along_rule(const Dims& shape, std::span<const int64_t> whole) {
  Rule rule;
  Operand operand{shape, {}};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const bool cut = !holds(whole, dim);
    operand.axes.push_back(cut ? static_cast<int>(rule.axes.size()) : kNoAxis);
    if (cut) rule.axes.push_back({shape[dim]});
  }
  rule.results = {operand};
  rule.operands = {std::move(operand)};
  return rule;
}

Rule normalization_rule(const Dims& shape, const Dims& normalized, size_t parameters) {
  const bool fits = normalized.size() <= shape.size() &&
                    std::equal(normalized.begin(), normalized.end(), shape.end() - normalized.size());
  HP_CHECK(fits && !normalized.empty(), kInvalidArgument, "normalized_shape ", tuple_text(normalized),
           " is not the end of the shape ", tuple_text(shape));
  std::vector<int64_t> whole(normalized.size());
  std::iota(whole.begin(), whole.end(), static_cast<int64_t>(shape.size() - normalized.size()));
  Rule rule = along_rule(shape, whole);
  const Operand parameter{normalized, std::vector<int>(normalized.size(), kNoAxis)};
  rule.operands.insert(rule.operands.end(), parameters, parameter);
  return rule;
}

}  // namespace hyper_parallel
