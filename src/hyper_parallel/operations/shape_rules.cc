#include "hyper_parallel/operations/shape_rules.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/operations/pointwise_rule.h"

namespace hyper_parallel {
namespace {

constexpr Pending kAnyPending{Pending::Carriers::kEvery, kAllOps};

int64_t cell_count(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, checked_mul);
}

Operand without_axes(const Dims& shape) { return {shape, std::vector<int>(shape.size(), kNoAxis)}; }

// Walks over two shapes of equally many cells, from the front, and finds groups of dims that hold the same cells.
class ViewMatcher {
 public:
  explicit ViewMatcher(Rule& rule) : rule_(rule), from_(rule.operands.front()), to_(rule.results.front()) {}

  void run() {
    size_t from = 0;
    size_t to = 0;
    while (from < from_.shape.size() || to < to_.shape.size()) {
      size_t from_end = from;
      size_t to_end = to;
      int64_t from_cells = take(from_.shape, from_end);
      int64_t to_cells = take(to_.shape, to_end);
      while (from_cells != to_cells) {
        if (from_cells < to_cells) {
          from_cells *= take(from_.shape, from_end);
        } else {
          to_cells *= take(to_.shape, to_end);
        }
      }
      match(from, from_end, to, to_end);
      from = from_end;
      to = to_end;
    }
  }

 private:
  // The size of the dim `at`, and one dim on; 1 behind the last.
  static int64_t take(const Dims& shape, size_t& at) { return at < shape.size() ? shape[at++] : 1; }

  static size_t first_cut(const Dims& shape, size_t begin, size_t end) {
    while (begin < end && shape[begin] == 1) ++begin;
    return begin;
  }

  void match(size_t from, size_t from_end, size_t to, size_t to_end) {
    const size_t from_dim = first_cut(from_.shape, from, from_end);
    const size_t to_dim = first_cut(to_.shape, to, to_end);
    if (from_dim == from_end && to_dim == to_end && from < from_end && to < to_end)
      return join(from, to, Axis::Cut::kAny);
    if (from_dim == from_end || to_dim == to_end) return;
    const bool alike = from_.shape[from_dim] == to_.shape[to_dim];
    join(from_dim, to_dim, alike ? Axis::Cut::kAny : Axis::Cut::kEven);
  }

  void join(size_t from_dim, size_t to_dim, Axis::Cut cut) {
    const int axis = static_cast<int>(rule_.axes.size());
    rule_.axes.push_back({std::gcd(from_.shape[from_dim], to_.shape[to_dim]), Axis::Use::kParallel, cut});
    from_.axes[from_dim] = axis;
    to_.axes[to_dim] = axis;
  }

  Rule& rule_;
  Operand& from_;
  Operand& to_;
};

}  // namespace

Dims view_shape(const Dims& shape, std::span<const int64_t> sizes) {
  const int64_t cells = cell_count(shape);
  Dims result{sizes};
  std::optional<size_t> open;
  int64_t given = 1;
  for (size_t dim = 0; dim < result.size(); ++dim) {
    HP_CHECK(result[dim] >= -1, kInvalidArgument, "shape ", tuple_text(result), " has the negative size ", result[dim]);
    HP_CHECK(result[dim] >= 0 || !open, kInvalidArgument, "shape ", tuple_text(result), " has -1 twice");
    if (result[dim] < 0) {
      open = dim;
    } else {
      given = checked_mul(given, result[dim]);
    }
  }
  const bool fits = open ? given != 0 && cells % given == 0 : given == cells;
  HP_CHECK(fits, kInvalidArgument, "a tensor of shape ", tuple_text(shape), " with ", cells,
           " cells cannot be viewed in shape ", tuple_text(result));
  if (open) result[*open] = cells / given;
  return result;
}

Rule view_rule(const Dims& shape, const Dims& new_shape) {
  Rule rule;
  rule.pending = kAnyPending;
  rule.operands = {without_axes(shape)};
  rule.results = {without_axes(new_shape)};
  if (cell_count(shape) > 0) ViewMatcher(rule).run();
  return rule;
}

Rule permutation_rule(const Dims& shape, std::span<const int64_t> order) {
  HP_CHECK(order.size() == shape.size(), kInvalidArgument, "dims ", tuple_text(order), " do not order the ",
           shape.size(), " dims of shape ", tuple_text(shape));
  Rule rule;
  rule.pending = kAnyPending;
  Operand operand{shape, {}};
  for (const int64_t cells : shape) {
    operand.axes.push_back(static_cast<int>(rule.axes.size()));
    rule.axes.push_back({cells});
  }
  Operand result = without_axes(shape);
  std::vector<bool> seen(shape.size(), false);
  for (size_t i = 0; i < order.size(); ++i) {
    const auto dim = static_cast<size_t>(order[i]);
    HP_CHECK(!seen[dim], kInvalidArgument, "dims ", tuple_text(order), " have ", dim,
             " twice, but must be a permutation");
    seen[dim] = true;
    result.shape[i] = shape[dim];
    result.axes[i] = operand.axes[dim];
  }
  rule.operands = {std::move(operand)};
  rule.results = {std::move(result)};
  return rule;
}

Dims expanded_shape(const Dims& shape, std::span<const int64_t> sizes) {
  HP_CHECK(sizes.size() >= shape.size(), kInvalidArgument, "sizes ", tuple_text(sizes),
           " are fewer than the dims of shape ", tuple_text(shape));
  Dims result{sizes};
  const size_t added = sizes.size() - shape.size();
  for (size_t dim = 0; dim < result.size(); ++dim) {
    const bool keeps = result[dim] == -1 && dim >= added;
    if (keeps) result[dim] = shape[dim - added];
    HP_CHECK(result[dim] >= 0, kInvalidArgument, "sizes ", tuple_text(sizes), " have ", sizes[dim],
             ", but must be sizes, or -1 for a dim that is there");
    HP_CHECK(dim < added || shape[dim - added] == 1 || shape[dim - added] == result[dim], kInvalidArgument, "shape ",
             tuple_text(shape), " cannot be expanded to sizes ", tuple_text(sizes), ": dim ", dim - added, " has ",
             shape[dim - added], " cells, and only 1 can be repeated");
  }
  return result;
}

Rule expand_rule(const Dims& shape, const Dims& new_shape) {
  Rule rule;
  rule.pending = kAnyPending;
  Operand result = without_axes(new_shape);
  const size_t added = new_shape.size() - shape.size();
  for (size_t dim = added; dim < new_shape.size(); ++dim) {
    if (shape[dim - added] != new_shape[dim]) continue;
    result.axes[dim] = static_cast<int>(rule.axes.size());
    rule.axes.push_back({new_shape[dim]});
  }
  rule.operands = {{shape, broadcast_axes(shape, new_shape, result.axes)}};
  rule.results = {std::move(result)};
  return rule;
}

}  // namespace hyper_parallel
