#include "hyper_parallel/operations/contraction_rule.h"

#include <algorithm>
#include <map>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/operations/pointwise_rule.h"

namespace hyper_parallel {
namespace {

// Size of each label, over all operands.
std::map<int, int64_t> label_sizes(std::span<const Dims> shapes, std::span<const std::vector<int>> labels) {
  std::map<int, int64_t> sizes;
  for (size_t i = 0; i < shapes.size(); ++i) {
    HP_CHECK(labels[i].size() == shapes[i].size(), kInvalidArgument, "an operand of shape ", tuple_text(shapes[i]),
             " was given ", labels[i].size(), " labels, but must have one per dim");
    for (size_t dim = 0; dim < shapes[i].size(); ++dim) {
      int64_t& size = sizes.try_emplace(labels[i][dim], 1).first->second;
      HP_CHECK(std::ranges::count(labels[i], labels[i][dim]) == 1, kUnimplemented, "an operand of shape ",
               tuple_text(shapes[i]), " has a label twice: diagonals are not supported");
      HP_CHECK(size == 1 || shapes[i][dim] == 1 || size == shapes[i][dim], kInvalidArgument, "shapes ",
               tuple_text(shapes.front()), " and ", tuple_text(shapes[i]), " do not fit: dims of size ", size, " and ",
               shapes[i][dim], " meet, but must be equal or 1");
      if (size == 1) size = shapes[i][dim];
    }
  }
  return sizes;
}

// 0, 1, .. for the last `count` batch dims of `total`, counted from the front of the longer one.
std::vector<int> batch_labels(size_t count, size_t total) {
  std::vector<int> labels;
  for (size_t i = total - count; i < total; ++i) labels.push_back(static_cast<int>(i));
  return labels;
}

struct Equation {
  std::vector<std::vector<int>> operands;
  std::vector<int> result;
};

std::vector<int> labels_of(std::string_view text) {
  std::vector<int> labels;
  for (const char c : text) {
    if (c == ' ') continue;
    HP_CHECK(c != '.', kUnimplemented, "einsum: '...' is not supported; write the labels out");
    HP_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), kInvalidArgument,
             "einsum: an equation is of letters, ',' and '->'");
    labels.push_back(c);
  }
  return labels;
}

Equation parse_equation(std::string_view equation) {
  const size_t arrow = equation.find("->");
  Equation parsed;
  std::string_view rest = equation.substr(0, arrow);
  for (size_t comma = 0; comma != std::string_view::npos;) {
    comma = rest.find(',');
    parsed.operands.push_back(labels_of(rest.substr(0, comma)));
    if (comma != std::string_view::npos) rest.remove_prefix(comma + 1);
  }
  if (arrow != std::string_view::npos) {
    parsed.result = labels_of(equation.substr(arrow + 2));
    return parsed;
  }
  std::map<int, int> counts;
  for (const auto& labels : parsed.operands) {
    for (const int label : labels) ++counts[label];
  }
  for (const auto& [label, count] : counts) {
    if (count == 1) parsed.result.push_back(label);
  }
  return parsed;
}

}  // namespace

Rule contraction_rule(std::span<const Dims> shapes, std::span<const std::vector<int>> labels,
                      const std::vector<int>& result_labels) {
  const std::map<int, int64_t> sizes = label_sizes(shapes, labels);
  Rule rule;
  rule.pending = {Pending::Carriers::kOne, kLinearOps};
  std::map<int, int> axis_of;
  for (const auto& [label, cells] : sizes) {
    axis_of[label] = static_cast<int>(rule.axes.size());
    const bool kept = std::ranges::find(result_labels, label) != result_labels.end();
    rule.axes.push_back({cells, kept ? Axis::Use::kParallel : Axis::Use::kReduced});
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    Operand operand{shapes[i], {}};
    for (size_t dim = 0; dim < shapes[i].size(); ++dim) {
      const bool whole = shapes[i][dim] != sizes.at(labels[i][dim]);
      operand.axes.push_back(whole ? kNoAxis : axis_of.at(labels[i][dim]));
    }
    rule.operands.push_back(std::move(operand));
  }
  Operand result;
  std::vector<int64_t> shape;
  for (const int label : result_labels) {
    HP_CHECK(axis_of.contains(label) && std::ranges::count(result_labels, label) == 1, kInvalidArgument,
             "the result has a label that no operand has, or one twice");
    shape.push_back(sizes.at(label));
    result.axes.push_back(axis_of.at(label));
  }
  result.shape = Dims(shape);
  rule.results.push_back(std::move(result));
  return rule;
}

Rule einsum_rule(std::string_view equation, std::span<const Dims> shapes) {
  const Equation parsed = parse_equation(equation);
  HP_CHECK(parsed.operands.size() == shapes.size(), kInvalidArgument, "einsum: the equation has ",
           parsed.operands.size(), " operands, but ", shapes.size(), " were given");
  return contraction_rule(shapes, parsed.operands, parsed.result);
}

Rule matmul_rule(const Dims& a, const Dims& b) {
  HP_CHECK(!a.empty() && !b.empty(), kInvalidArgument, "matmul takes operands of one dim or more, but the shapes are ",
           tuple_text(a), " and ", tuple_text(b));
  const bool a_is_vector = a.size() == 1;
  const bool b_is_vector = b.size() == 1;
  const size_t a_batch = a_is_vector ? 0 : a.size() - 2;
  const size_t b_batch = b_is_vector ? 0 : b.size() - 2;
  const size_t batch = std::max(a_batch, b_batch);
  const int m = static_cast<int>(batch);
  const int k = m + 1;
  const int n = m + 2;
  HP_CHECK(a[a.size() - 1] == b[b_is_vector ? 0 : b.size() - 2], kInvalidArgument, "matmul of shapes ", tuple_text(a),
           " and ", tuple_text(b), ": the dims that meet have ", a[a.size() - 1], " and ",
           b[b_is_vector ? 0 : b.size() - 2], " cells, but must be equal");
  std::vector<std::vector<int>> labels{batch_labels(a_batch, batch), batch_labels(b_batch, batch)};
  std::vector<int> result = batch_labels(batch, batch);
  if (!a_is_vector) labels[0].push_back(m);
  labels[0].push_back(k);
  labels[1].push_back(k);
  if (!b_is_vector) labels[1].push_back(n);
  if (!a_is_vector) result.push_back(m);
  if (!b_is_vector) result.push_back(n);
  return contraction_rule(std::vector<Dims>{a, b}, labels, result);
}

Rule linear_rule(const Dims& x, const Dims& weight, const std::optional<Dims>& bias) {
  HP_CHECK(!x.empty() && (weight.size() == 1 || weight.size() == 2), kInvalidArgument, "linear of shapes ",
           tuple_text(x), " and ", tuple_text(weight), ": the weight must have 1 or 2 dims, the input 1 or more");
  HP_CHECK(x[x.size() - 1] == weight[weight.size() - 1], kInvalidArgument, "linear of shapes ", tuple_text(x), " and ",
           tuple_text(weight), ": the last dims have ", x[x.size() - 1], " and ", weight[weight.size() - 1],
           " cells, but must be equal");
  const int k = static_cast<int>(x.size());
  const int n = k + 1;
  std::vector<int> x_labels = batch_labels(x.size() - 1, x.size() - 1);
  std::vector<int> result = x_labels;
  x_labels.push_back(k);
  std::vector<int> weight_labels{k};
  if (weight.size() == 2) {
    weight_labels.insert(weight_labels.begin(), n);
    result.push_back(n);
  }
  Rule rule =
      contraction_rule(std::vector<Dims>{x, weight}, std::vector<std::vector<int>>{x_labels, weight_labels}, result);
  return bias ? with_addend(std::move(rule), *bias, 2) : rule;
}

Rule with_addend(Rule rule, const Dims& shape, size_t position) {
  const Operand& result = rule.results.front();
  HP_CHECK(
      shape.size() <= result.shape.size() && broadcast_shape(std::vector<Dims>{result.shape, shape}) == result.shape,
      kInvalidArgument, "an operand of shape ", tuple_text(shape), " cannot be added to a product of shape ",
      tuple_text(result.shape));
  Operand addend{shape, broadcast_axes(shape, result.shape, result.axes), Operand::Term::kAddend};
  rule.operands.insert(rule.operands.begin() + static_cast<std::ptrdiff_t>(position), std::move(addend));
  return rule;
}

}  // namespace hyper_parallel
