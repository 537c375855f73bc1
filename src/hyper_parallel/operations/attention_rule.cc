#include "hyper_parallel/operations/attention_rule.h"

#include <algorithm>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/operations/pointwise_rule.h"

namespace hyper_parallel {
namespace {

void check_shapes(const Dims& query, const Dims& key, const Dims& value) {
  const size_t ndim = query.size();
  const bool fits = ndim >= 2 && key.size() == ndim && value.size() == ndim && query[ndim - 1] == key[ndim - 1] &&
                    key[ndim - 2] == value[ndim - 2];
  HP_CHECK(fits, kInvalidArgument, "attention of shapes ", tuple_text(query), ", ", tuple_text(key), " and ",
           tuple_text(value), ": they must be (..., L, E), (..., S, E) and (..., S, V)");
  const auto batch = static_cast<std::ptrdiff_t>(ndim - 2);
  const bool alike = std::equal(query.begin(), query.begin() + batch, key.begin()) &&
                     std::equal(query.begin(), query.begin() + batch, value.begin());
  HP_CHECK(alike, kUnimplemented, "attention of shapes ", tuple_text(query), ", ", tuple_text(key), " and ",
           tuple_text(value), ": their batch dims and heads must be equal");
}

}  // namespace

Rule attention_rule(const Dims& query, const Dims& key, const Dims& value, const std::optional<Dims>& mask,
                    Causal causal) {
  check_shapes(query, key, value);
  const size_t ndim = query.size();
  Rule rule;
  std::vector<int> batch;
  for (size_t dim = 0; dim + 2 < ndim; ++dim) {
    batch.push_back(static_cast<int>(dim));
    rule.axes.push_back({query[dim]});
  }
  const auto with = [&batch](int row, int column) {
    std::vector<int> axes = batch;
    axes.insert(axes.end(), {row, column});
    return axes;
  };
  const int columns = static_cast<int>(rule.axes.size());
  rule.axes.push_back({value[ndim - 1]});
  int rows = kNoAxis;
  if (causal == Causal::kNo) {
    rows = static_cast<int>(rule.axes.size());
    rule.axes.push_back({query[ndim - 2]});
  }
  rule.operands = {{query, with(rows, kNoAxis)}, {key, with(kNoAxis, kNoAxis)}, {value, with(kNoAxis, columns)}};
  if (mask) {
    Dims scores = query;
    scores[ndim - 1] = key[ndim - 2];
    HP_CHECK(mask->size() <= ndim && broadcast_shape(std::vector<Dims>{scores, *mask}) == scores, kInvalidArgument,
             "attention: the mask of shape ", tuple_text(*mask), " does not broadcast to ", tuple_text(scores));
    rule.operands.push_back({*mask, broadcast_axes(*mask, scores, with(rows, kNoAxis))});
  }
  Dims result = query;
  result[ndim - 1] = value[ndim - 1];
  rule.results = {{result, with(rows, columns)}};
  return rule;
}

}  // namespace hyper_parallel
