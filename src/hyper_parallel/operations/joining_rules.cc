#include "hyper_parallel/operations/joining_rules.h"

#include <algorithm>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

constexpr Pending kAllPending{Pending::Carriers::kEvery, kAllOps};
constexpr Pending kOnePending{Pending::Carriers::kOne, kAllOps};  // of the tensor that an index takes cells from

// An axis for each dim but `dim`, in `rule`.
Operand cut_beside(Rule& rule, const Dims& shape, size_t dim) {
  Operand operand{shape, {}};
  for (size_t d = 0; d < shape.size(); ++d) {
    operand.axes.push_back(d == dim ? kNoAxis : static_cast<int>(rule.axes.size()));
    if (d != dim) rule.axes.push_back({shape[d]});
  }
  return operand;
}

Operand resized(Operand operand, size_t dim, int64_t cells) {
  operand.shape[dim] = cells;
  return operand;
}

Operand without_dim(const Operand& operand, size_t dim) {
  std::vector<int64_t> shape = operand.shape.to_vector();
  Operand rest{{}, operand.axes};
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
  rest.axes.erase(rest.axes.begin() + static_cast<std::ptrdiff_t>(dim));
  rest.shape = Dims(shape);
  return rest;
}

}  // namespace

Rule cat_rule(std::span<const Dims> shapes, int64_t dim) {
  HP_CHECK(!shapes.empty(), kInvalidArgument, "cat takes one tensor or more");
  const auto at = static_cast<size_t>(dim);
  Rule rule;
  rule.pending = kAllPending;
  const Operand first = cut_beside(rule, shapes.front(), at);
  int64_t cells = 0;
  for (const Dims& shape : shapes) {
    const bool fits = shape.size() == shapes.front().size() && resized(first, at, shape[at]).shape == shape;
    HP_CHECK(fits, kInvalidArgument, "cat along dim ", dim, " of shapes ", tuple_text(shapes.front()), " and ",
             tuple_text(shape), ": they must agree but for that dim");
    rule.operands.push_back(resized(first, at, shape[at]));
    cells = checked_add(cells, shape[at]);
  }
  rule.results = {resized(first, at, cells)};
  return rule;
}

Rule stack_rule(std::span<const Dims> shapes, int64_t dim) {
  HP_CHECK(!shapes.empty(), kInvalidArgument, "stack takes one tensor or more");
  std::vector<int64_t> stacked = shapes.front().to_vector();
  stacked.insert(stacked.begin() + static_cast<std::ptrdiff_t>(dim), static_cast<int64_t>(shapes.size()));
  Rule rule;
  rule.pending = kAllPending;
  rule.results = {cut_beside(rule, Dims(stacked), static_cast<size_t>(dim))};
  const Operand operand = without_dim(rule.results.front(), static_cast<size_t>(dim));
  for (const Dims& shape : shapes) {
    HP_CHECK(shape == operand.shape, kInvalidArgument, "stack of shapes ", tuple_text(operand.shape), " and ",
             tuple_text(shape), ": they must be equal");
    rule.operands.push_back(operand);
  }
  return rule;
}

Rule split_rule(const Dims& shape, int64_t dim, std::span<const int64_t> sizes) {
  Rule rule;
  rule.pending = kAllPending;
  const Operand operand = cut_beside(rule, shape, static_cast<size_t>(dim));
  for (const int64_t cells : sizes) rule.results.push_back(resized(operand, static_cast<size_t>(dim), cells));
  rule.operands = {operand};
  return rule;
}

Rule select_rule(const Dims& shape, int64_t dim) {
  Rule rule;
  rule.pending = kAllPending;
  rule.operands = {cut_beside(rule, shape, static_cast<size_t>(dim))};
  rule.results = {without_dim(rule.operands.front(), static_cast<size_t>(dim))};
  return rule;
}

Rule gather_rule(const Dims& shape, const Dims& index, int64_t dim) {
  HP_CHECK(shape.size() == index.size(), kInvalidArgument, "gather: the index of shape ", tuple_text(index),
           " must have as many dims as the tensor of shape ", tuple_text(shape));
  Rule rule;
  rule.pending = kOnePending;
  Operand operand{shape, {}};
  Operand indices{index, {}, Operand::Term::kIndex};
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool along = static_cast<int64_t>(d) == dim;
    HP_CHECK(along || index[d] <= shape[d], kInvalidArgument, "gather: the index of shape ", tuple_text(index),
             " leaves the tensor of shape ", tuple_text(shape), " along dim ", d);
    const bool alike = !along && shape[d] == index[d];
    const bool cut = along || alike;
    indices.axes.push_back(cut ? static_cast<int>(rule.axes.size()) : kNoAxis);
    operand.axes.push_back(alike ? indices.axes.back() : kNoAxis);
    if (cut) rule.axes.push_back({index[d]});
  }
  rule.results = {{index, indices.axes}};
  rule.operands = {std::move(operand), std::move(indices)};
  return rule;
}

Rule index_select_rule(const Dims& shape, const Dims& index, int64_t dim) {
  HP_CHECK(index.size() <= 1 && !shape.empty(), kInvalidArgument, "index_select: the index of shape ",
           tuple_text(index), " must have one dim, and the tensor of shape ", tuple_text(shape), " one or more");
  const auto at = static_cast<size_t>(dim);
  Rule rule;
  rule.pending = kOnePending;
  const Operand operand = cut_beside(rule, shape, at);
  const int64_t cells = index.empty() ? 1 : index[0];
  Operand result = resized(operand, at, cells);
  Operand indices{index, std::vector<int>(index.size(), static_cast<int>(rule.axes.size())), Operand::Term::kIndex};
  if (!index.empty()) {
    result.axes[at] = static_cast<int>(rule.axes.size());
    rule.axes.push_back({cells});
  }
  rule.operands = {operand, std::move(indices)};
  rule.results = {std::move(result)};
  return rule;
}

Rule embedding_rule(const Dims& table, const Dims& index) {
  HP_CHECK(table.size() == 2, kInvalidArgument, "embedding: the weight of shape ", tuple_text(table),
           " must have 2 dims");
  Rule rule;
  rule.pending = kOnePending;
  std::vector<int64_t> shape = index.to_vector();
  shape.push_back(table[1]);
  Operand result = cut_beside(rule, Dims(shape), shape.size());
  Operand indices = without_dim(result, shape.size() - 1);
  indices.term = Operand::Term::kIndex;
  rule.operands = {{table, {kNoAxis, result.axes.back()}}, std::move(indices)};
  rule.results = {std::move(result)};
  return rule;
}

}  // namespace hyper_parallel
