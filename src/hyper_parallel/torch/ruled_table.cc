// The table of operations that have a rule: `ruled_rows()` of operation_rules.h.

#include <array>
#include <numeric>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/operations/attention_rule.h"
#include "hyper_parallel/operations/contraction_rule.h"
#include "hyper_parallel/operations/dims_argument.h"
#include "hyper_parallel/operations/joining_rules.h"
#include "hyper_parallel/operations/loss_rules.h"
#include "hyper_parallel/operations/pointwise_rule.h"
#include "hyper_parallel/operations/reduction_rule.h"
#include "hyper_parallel/operations/shape_rules.h"
#include "hyper_parallel/torch/attention.h"
#include "hyper_parallel/torch/norm.h"
#include "hyper_parallel/torch/operation_rules.h"
#include "hyper_parallel/torch/random_writes.h"

namespace hyper_parallel {
namespace {

using Arguments = const RuleArguments&;

// What the rules mean, for the documentation.
constexpr std::string_view kSameCells = "cells at the same place; operands broadcast";
constexpr std::string_view kProduct =
    "contracted dims cut alike give Partial(sum); batch, row and column dims stay cut";
constexpr std::string_view kSums = "reduced dims that are cut give Partial(sum)";
constexpr std::string_view kExtremes = "reduced dims that are cut give Partial(max) or Partial(min)";
constexpr std::string_view kNorms =
    "reduced dims that are cut: each rank sends one number per result, which is Replicate there";
constexpr std::string_view kRandomCells = "each cell by its place in the whole tensor; every layout, ragged ones too";
constexpr std::string_view kWholeDims = "the dims named are needed whole";
constexpr std::string_view kLosses = "cells at the same place; their mean or sum, where cut, gives Partial(sum)";
constexpr std::string_view kViews = "a dim stays cut; of dims that merge or part the outermost, where cut evenly";

std::vector<int64_t> only(int64_t dim) { return {dim}; }

KeepDims keep_of(Arguments a) { return a.has("keepdim") && a.flag("keepdim") ? KeepDims::kYes : KeepDims::kNo; }

// The dims that the call names, all if none.
std::vector<int64_t> named_dims(Arguments a) {
  const std::vector<int64_t> dims = a.has("dim") ? a.integers("dim") : std::vector<int64_t>{};
  return folded_dims(dims, a.ndim());
}

// `dims` of a tensor of no dims mean nothing.
std::vector<int64_t> present(std::vector<int64_t> dims, size_t ndim) {
  std::erase_if(dims, [&](int64_t dim) { return dim >= static_cast<int64_t>(ndim); });
  return dims;
}

Rule reduce(Arguments a, std::optional<ReduceOp> op) {
  return reduction_rule(a.shape(0), present(named_dims(a), a.ndim()), keep_of(a), op);
}

Rule sum(Arguments a) {
  Rule rule = reduce(a, ReduceOp::kSum);
  if (a.is_given("dtype")) rule.pending = {};  // shares that are cut to another dtype are no longer shares
  return rule;
}

Rule max(Arguments a) { return reduce(a, ReduceOp::kMax); }
Rule min(Arguments a) { return reduce(a, ReduceOp::kMin); }
Rule reduce_whole(Arguments a) { return reduce(a, std::nullopt); }

// Of no dims, given as such, each cell for itself.
Rule test_cells(Arguments a) {
  const bool each = a.is_given("dim") && a.integers("dim").empty();
  return each ? pointwise_rule(a.shapes()) : reduce_whole(a);
}

// max(x), max(x, dim) with indices, max(x, other).
template <ReduceOp kOp>
Rule extreme(Arguments a) {
  if (a.has("other")) return pointwise_rule(a.shapes());
  if (!a.has("dim")) return reduce(a, kOp);
  Rule rule = reduce_whole(a);
  rule.results.push_back(rule.results.front());
  return rule;
}

Rule along(Arguments a) {
  return along_rule(a.shape(0), present(only(folded_dim(a.integer("dim"), a.ndim())), a.ndim()));
}

// Values and indices.
Rule sort(Arguments a) {
  Rule rule = along(a);
  rule.results.push_back(rule.results.front());
  return rule;
}

Rule topk(Arguments a) {
  Rule rule = sort(a);
  const auto dim = static_cast<size_t>(folded_dim(a.integer("dim"), a.ndim()));
  const int64_t count = a.integer("k");
  HP_CHECK(a.ndim() > 0 && count >= 0 && count <= a.shape(0)[dim], kInvalidArgument, "topk: k is ", count,
           " but must be from 0 to the cells along dim ", dim, " of shape ", tuple_text(a.shape(0)));
  for (Operand& result : rule.results) result.shape[dim] = count;
  return rule;
}

Rule flip(Arguments a) { return along_rule(a.shape(0), folded_dims(a.integers("dims"), a.ndim())); }

Rule triangle(Arguments a) {
  HP_CHECK(a.ndim() >= 2, kInvalidArgument, "a triangle is of 2 dims or more, not of shape ", tuple_text(a.shape(0)));
  const auto ndim = static_cast<int64_t>(a.ndim());
  return along_rule(a.shape(0), std::vector<int64_t>{ndim - 2, ndim - 1});
}

Rule normalize(Arguments a) {
  return normalization_rule(a.shape(0), Dims(a.integers("normalized_shape")), a.shapes().size() - 1);
}

Rule matmul(Arguments a) { return matmul_rule(a.shape(0), a.shape(1)); }

// A product of operands of so many dims each.
template <size_t kLeft, size_t kRight>
Rule product(Arguments a) {
  HP_CHECK(a.shape(0).size() == kLeft && a.shape(1).size() == kRight, kInvalidArgument, "operands of shapes ",
           tuple_text(a.shape(0)), " and ", tuple_text(a.shape(1)), " must have ", kLeft, " and ", kRight, " dims");
  const bool batched = kLeft == 3 && kRight == 3;
  HP_CHECK(!batched || a.shape(0)[0] == a.shape(1)[0], kInvalidArgument, "operands of shapes ", tuple_text(a.shape(0)),
           " and ", tuple_text(a.shape(1)), " must have equal first sizes");
  return matmul_rule(a.shape(0), a.shape(1));
}

Rule added_product(Arguments a) { return with_addend(matmul_rule(a.shape(1), a.shape(2)), a.shape(0), 0); }

Rule linear(Arguments a) {
  const bool biased = a.shapes().size() == 3;
  return linear_rule(a.shape(0), a.shape(1), biased ? std::optional(a.shape(2)) : std::nullopt);
}

Rule einsum(Arguments a) { return einsum_rule(a.text("equation"), a.shapes()); }

Rule view(Arguments a) {
  return view_rule(a.shape(0), view_shape(a.shape(0), a.integers(a.has("size") ? "size" : "shape")));
}

Rule flatten(Arguments a) {
  const int64_t begin = folded_dim(a.integer("start_dim"), a.ndim());
  const int64_t end = folded_dim(a.integer("end_dim"), a.ndim());
  HP_CHECK(begin <= end, kInvalidArgument, "flatten: start_dim ", begin, " is behind end_dim ", end);
  std::vector<int64_t> sizes = a.shape(0).to_vector();
  if (sizes.empty()) return view_rule(a.shape(0), {1});
  const auto first = sizes.begin() + begin;
  *first = std::accumulate(first, sizes.begin() + end + 1, int64_t{1}, std::multiplies<>());
  sizes.erase(first + 1, sizes.begin() + end + 1);
  return view_rule(a.shape(0), Dims(sizes));
}

Rule unflatten(Arguments a) {
  const int64_t dim = folded_dim(a.integer("dim"), a.ndim());
  HP_CHECK(a.ndim() > 0, kInvalidArgument, "unflatten takes a tensor of one dim or more");
  std::vector<int64_t> sizes = a.shape(0).to_vector();
  const std::vector<int64_t> parts = view_shape(Dims{sizes[static_cast<size_t>(dim)]}, a.integers("sizes")).to_vector();
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin() + dim, parts.begin(), parts.end());
  return view_rule(a.shape(0), Dims(sizes));
}

Rule squeeze(Arguments a) {
  if (a.has("dim") && a.integers("dim").empty()) return view_rule(a.shape(0), a.shape(0));
  const std::vector<int64_t> dims = named_dims(a);
  std::vector<int64_t> sizes;
  for (size_t dim = 0; dim < a.ndim(); ++dim) {
    const bool named = std::ranges::find(dims, static_cast<int64_t>(dim)) != dims.end();
    if (!named || a.shape(0)[dim] != 1) sizes.push_back(a.shape(0)[dim]);
  }
  return view_rule(a.shape(0), Dims(sizes));
}

Rule unsqueeze(Arguments a) {
  const int64_t dim = folded_dim(a.integer("dim"), a.ndim() + 1);
  std::vector<int64_t> sizes = a.shape(0).to_vector();
  sizes.insert(sizes.begin() + dim, 1);
  return view_rule(a.shape(0), Dims(sizes));
}

Rule expand(Arguments a) { return expand_rule(a.shape(0), expanded_shape(a.shape(0), a.integers("size"))); }

Rule permute(Arguments a) {
  const std::vector<int64_t> dims = a.integers("dims");
  return permutation_rule(a.shape(0), dims.empty() ? dims : folded_dims(dims, a.ndim()));
}

Rule exchanged(Arguments a, int64_t first, int64_t second) {
  std::vector<int64_t> order(a.ndim());
  std::iota(order.begin(), order.end(), 0);
  if (!order.empty()) std::swap(order[static_cast<size_t>(first)], order[static_cast<size_t>(second)]);
  return permutation_rule(a.shape(0), order);
}

Rule transpose(Arguments a) {
  return exchanged(a, folded_dim(a.integer("dim0"), a.ndim()), folded_dim(a.integer("dim1"), a.ndim()));
}

Rule t(Arguments a) {
  HP_CHECK(a.ndim() <= 2, kInvalidArgument, "t() takes a tensor of 2 dims or fewer, not of shape ",
           tuple_text(a.shape(0)));
  return exchanged(a, 0, static_cast<int64_t>(a.ndim()) - 1 > 0 ? 1 : 0);
}

int64_t dim_in(Arguments a) {
  HP_CHECK(a.ndim() > 0, kInvalidArgument, "a tensor of no dims cannot be taken apart");
  return folded_dim(a.integer("dim"), a.ndim());
}

Rule cat(Arguments a) {
  HP_CHECK(!a.shapes().empty(), kInvalidArgument, "cat takes one tensor or more");
  return cat_rule(a.shapes(), dim_in(a));
}

Rule stack(Arguments a) {
  HP_CHECK(!a.shapes().empty(), kInvalidArgument, "stack takes one tensor or more");
  return stack_rule(a.shapes(), folded_dim(a.integer("dim"), a.ndim() + 1));
}

// As many pieces of `size` as there are, the last one shorter.
Rule split_evenly(Arguments a, int64_t dim, int64_t size) {
  const int64_t cells = a.shape(0)[static_cast<size_t>(dim)];
  HP_CHECK(size > 0 || (size == 0 && cells == 0), kInvalidArgument, "split into pieces of ", size, " of ", cells,
           " cells: the size must be positive");
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < cells; begin += size) sizes.push_back(std::min(size, cells - begin));
  if (sizes.empty()) sizes.push_back(0);
  return split_rule(a.shape(0), dim, sizes);
}

Rule split(Arguments a) {
  const int64_t dim = dim_in(a);
  if (a.is_integer("split_size")) return split_evenly(a, dim, a.integer("split_size"));
  const std::vector<int64_t> sizes = a.integers(a.has("split_sizes") ? "split_sizes" : "split_size");
  const int64_t cells = a.shape(0)[static_cast<size_t>(dim)];
  const bool fits = std::ranges::all_of(sizes, [](int64_t size) { return size >= 0; }) &&
                    std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == cells;
  HP_CHECK(fits, kInvalidArgument, "split sizes ", tuple_text(sizes), " must be sizes that add up to the ", cells,
           " cells along dim ", dim);
  return split_rule(a.shape(0), dim, sizes);
}

Rule chunk(Arguments a) {
  const int64_t dim = dim_in(a);
  const int64_t chunks = a.integer("chunks");
  HP_CHECK(chunks > 0, kInvalidArgument, "chunk: chunks is ", chunks, " but must be positive");
  const int64_t cells = a.shape(0)[static_cast<size_t>(dim)];
  if (cells == 0) return split_rule(a.shape(0), dim, std::vector<int64_t>(static_cast<size_t>(chunks), 0));
  return split_evenly(a, dim, (cells + chunks - 1) / chunks);
}

Rule unbind(Arguments a) {
  const int64_t dim = dim_in(a);
  Rule rule = select_rule(a.shape(0), dim);
  rule.results.resize(static_cast<size_t>(a.shape(0)[static_cast<size_t>(dim)]), rule.results.front());
  return rule;
}

Rule select(Arguments a) {
  const int64_t dim = dim_in(a);
  const int64_t cells = a.shape(0)[static_cast<size_t>(dim)];
  const int64_t index = a.integer("index");
  HP_CHECK(index >= -cells && index < cells, kOutOfRange, "index ", index, " is out of range for the ", cells,
           " cells along dim ", dim);
  return select_rule(a.shape(0), dim);
}

Rule slice(Arguments a) {
  const int64_t dim = dim_in(a);
  const int64_t cells = a.shape(0)[static_cast<size_t>(dim)];
  const int64_t step = a.integer("step");
  HP_CHECK(step > 0, kInvalidArgument, "slice: step is ", step, " but must be positive");
  const auto bound = [&](std::string_view name, int64_t otherwise) {
    const int64_t given = a.is_given(name) ? a.integer(name) : otherwise;
    return std::clamp(given < 0 ? given + cells : given, int64_t{0}, cells);
  };
  const int64_t begin = bound("start", 0);
  const int64_t end = std::max(begin, bound("end", cells));
  if (end - begin == cells && step == 1) return view_rule(a.shape(0), a.shape(0));
  return split_rule(a.shape(0), dim, only((end - begin + step - 1) / step));
}

Rule narrow(Arguments a) {
  const int64_t dim = dim_in(a);
  const int64_t cells = a.shape(0)[static_cast<size_t>(dim)];
  const int64_t start = a.integer("start") < 0 ? a.integer("start") + cells : a.integer("start");
  const int64_t length = a.integer("length");
  HP_CHECK(start >= 0 && length >= 0 && start <= cells - length, kInvalidArgument, "narrow: start ", a.integer("start"),
           " and length ", length, " leave the ", cells, " cells along dim ", dim);
  return split_rule(a.shape(0), dim, only(length));
}

Rule gather(Arguments a) { return gather_rule(a.shape(0), a.shape(1), dim_in(a)); }
Rule index_select(Arguments a) { return index_select_rule(a.shape(0), a.shape(1), dim_in(a)); }
Rule embedding(Arguments a) { return embedding_rule(a.shape(0), a.shape(1)); }

Rule attention(Arguments a) {
  const bool masked = a.shapes().size() == 4;
  return attention_rule(a.shape(0), a.shape(1), a.shape(2), masked ? std::optional(a.shape(3)) : std::nullopt,
                        a.flag("is_causal") ? Causal::kYes : Causal::kNo);
}

LossReduction reduction_of(Arguments a) {
  const int64_t reduction = a.integer("reduction");
  HP_CHECK(reduction >= 0 && reduction <= 2, kInvalidArgument, "reduction is ", reduction,
           " but must be 0 (none), 1 (mean) or 2 (sum)");
  return static_cast<LossReduction>(reduction);
}

Rule loss(Arguments a) { return reduced_loss(pointwise_rule(a.shapes()), reduction_of(a)); }

Rule class_loss(Arguments a) {
  const bool weighted = a.shapes().size() == 3;
  return class_loss_rule(a.shape(0), a.shape(1), weighted ? std::optional(a.shape(2)) : std::nullopt, reduction_of(a));
}

using enum LocalCall;

constexpr RuledRow pointwise(std::string_view name, std::string_view overloads) {
  return {name, overloads, elementwise_rule, kAsCalled, kSameCells};
}

// clang-format off
constexpr auto kRows = std::to_array<RuledRow>({
    // Cells at the same place, on normal layouts only.
    pointwise("acos", ""), pointwise("acosh", ""), pointwise("asin", ""), pointwise("asinh", ""),
    pointwise("atan", ""), pointwise("atanh", ""), pointwise("atan2", ""), pointwise("ceil", ""),
    pointwise("ceil_", ""), pointwise("celu", ""), pointwise("copysign", "Tensor|Scalar"),
    pointwise("cosh", ""), pointwise("deg2rad", ""), pointwise("digamma", ""), pointwise("elu", ""),
    pointwise("erf", ""), pointwise("erfc", ""), pointwise("erfinv", ""), pointwise("exp2", ""),
    pointwise("expm1", ""), pointwise("floor", ""), pointwise("floor_", ""),
    pointwise("floor_divide", "|Scalar"), pointwise("fmax", ""), pointwise("fmin", ""),
    pointwise("fmod", "Tensor|Scalar"), pointwise("frac", ""), pointwise("hardsigmoid", ""),
    pointwise("hardswish", ""), pointwise("hardtanh", ""), pointwise("heaviside", ""),
    pointwise("hypot", ""), pointwise("isfinite", ""), pointwise("isneginf", ""),
    pointwise("isposinf", ""), pointwise("leaky_relu", ""), pointwise("lgamma", ""),
    pointwise("log10", ""), pointwise("log1p", ""), pointwise("log2", ""), pointwise("log_sigmoid", ""),
    pointwise("logaddexp", ""), pointwise("logical_and", ""), pointwise("logical_not", ""),
    pointwise("logical_or", ""), pointwise("logical_xor", ""), pointwise("logit", ""),
    pointwise("masked_fill", "Scalar|Tensor"), pointwise("masked_fill_", "Scalar|Tensor"),
    pointwise("mish", ""), pointwise("nan_to_num", ""), pointwise("rad2deg", ""),
    pointwise("bitwise_and", "Tensor|Scalar"), pointwise("bitwise_not", ""),
    pointwise("bitwise_or", "Tensor|Scalar"), pointwise("bitwise_xor", "Tensor|Scalar"),
    pointwise("remainder", "Tensor|Scalar"), pointwise("round", "|decimals"), pointwise("round_", ""),
    pointwise("selu", ""), pointwise("sgn", ""), pointwise("signbit", ""), pointwise("sinh", ""),
    pointwise("softplus", ""), pointwise("tan", ""), pointwise("tanh", ""), pointwise("tanh_", ""),
    pointwise("threshold", ""), pointwise("trunc", ""), pointwise("trunc_", ""),
    pointwise("xlogy", "Tensor|Scalar_Other"),

    {"matmul", "", matmul, kAsCalled, kProduct}, {"mm", "", product<2, 2>, kAsCalled, kProduct},
    {"bmm", "", product<3, 3>, kAsCalled, kProduct}, {"mv", "", product<2, 1>, kAsCalled, kProduct},
    {"dot", "", product<1, 1>, kAsCalled, kProduct}, {"linear", "", linear, kAsCalled, kProduct},
    {"einsum", "", einsum, kAsCalled, kProduct}, {"addmm", "", added_product, kAsCalled, kProduct},
    {"baddbmm", "", added_product, kAsCalled, kProduct},

    {"sum", "|dim_IntList", sum, kAsCalled, kSums}, {"mean", "|dim", sum, kMean, kSums},
    {"amax", "", max, kExtreme, kExtremes}, {"amin", "", min, kExtreme, kExtremes},
    {"max", "|dim|other", extreme<ReduceOp::kMax>, kExtreme, "with dim: it is needed whole; else as amax"},
    {"min", "|dim|other", extreme<ReduceOp::kMin>, kExtreme, "with dim: it is needed whole; else as amin"},
    {"argmax", "", reduce_whole, kAsCalled, kWholeDims}, {"argmin", "", reduce_whole, kAsCalled, kWholeDims},
    {"all", "|dim|dims", test_cells, kAsCalled, kWholeDims}, {"any", "|dim|dims", test_cells, kAsCalled, kWholeDims},
    {"prod", "|dim_int", reduce_whole, kAsCalled, kWholeDims},
    {"logsumexp", "", reduce_whole, kAsCalled, kWholeDims}, {"count_nonzero", "|dim_IntList", reduce_whole, kAsCalled, kWholeDims},
    {"var", "|dim|correction", reduce_whole, kAsCalled, kWholeDims}, {"std", "|dim|correction", reduce_whole, kAsCalled, kWholeDims},

    {"linalg_vector_norm", "", nullptr, kAsCalled, kNorms, vector_norm},
    {"_foreach_norm", "Scalar", nullptr, kAsCalled, kNorms, foreach_norm},

    {"softmax", "int", along, kAsCalled, kWholeDims}, {"log_softmax", "int", along, kAsCalled, kWholeDims},
    {"cumsum", "", along, kAsCalled, kWholeDims}, {"cumprod", "", along, kAsCalled, kWholeDims},
    {"sort", "", sort, kAsCalled, kWholeDims}, {"argsort", "", along, kAsCalled, kWholeDims},
    {"topk", "", topk, kAsCalled, kWholeDims}, {"flip", "", flip, kAsCalled, kWholeDims},
    {"tril", "", triangle, kAsCalled, "the last two dims are needed whole"},
    {"triu", "", triangle, kAsCalled, "the last two dims are needed whole"},
    {"layer_norm", "", normalize, kAsCalled, "the normalized dims are needed whole"},
    {"rms_norm", "", normalize, kAsCalled, "the normalized dims are needed whole"},
    {"_safe_softmax", "", along, kAsCalled, kWholeDims},
    {"scaled_dot_product_attention", "", attention, kAsCalled,
     "batch dims, heads, value columns, and rows unless causal, stay cut", attention_with_dropout},

    {"mse_loss", "", loss, kMeanLoss, kLosses}, {"l1_loss", "", loss, kMeanLoss, kLosses},
    {"smooth_l1_loss", "", loss, kMeanLoss, kLosses}, {"huber_loss", "", loss, kMeanLoss, kLosses},
    {"binary_cross_entropy", "", loss, kMeanLoss, kLosses}, {"kl_div", "", loss, kMeanLoss, kLosses},
    {"binary_cross_entropy_with_logits", "", loss, kMeanLoss, kLosses},
    {"cross_entropy_loss", "", class_loss, kClassLoss, "classes are needed whole; samples that are cut give Partial(sum)"},
    {"nll_loss_nd", "", class_loss, kClassLoss, "classes are needed whole; samples that are cut give Partial(sum)"},

    {"uniform_", "", nullptr, kAsCalled, kRandomCells, uniform_in_place, RuledRow::Layouts::kEvery},
    {"normal_", "", nullptr, kAsCalled, kRandomCells, normal_in_place, RuledRow::Layouts::kEvery},

    {"view", "", view, kView, kViews}, {"reshape", "", view, kReshape, kViews},
    {"flatten", "using_ints", flatten, kReshape, kViews}, {"unflatten", "int", unflatten, kReshape, kViews},
    {"squeeze", "|dim|dims", squeeze, kView, kViews}, {"unsqueeze", "", unsqueeze, kView, kViews},
    {"expand", "", expand, kResultSizes, kViews},
    {"permute", "", permute, kAsCalled, "dims stay cut"}, {"transpose", "int", transpose, kAsCalled, "dims stay cut"},
    {"t", "", t, kAsCalled, "dims stay cut"},

    {"cat", "", cat, kAsCalled, kWholeDims}, {"stack", "", stack, kAsCalled, "dims stay cut; the new one is not"},
    {"split", "Tensor|sizes", split, kAsCalled, kWholeDims},
    {"split_with_sizes", "", split, kAsCalled, kWholeDims}, {"chunk", "", chunk, kAsCalled, kWholeDims},
    {"unbind", "int", unbind, kAsCalled, kWholeDims}, {"select", "int", select, kAsCalled, kWholeDims},
    {"slice", "Tensor", slice, kAsCalled, kWholeDims}, {"narrow", "", narrow, kAsCalled, kWholeDims},
    {"gather", "", gather, kAsCalled, "the dim is needed whole in the operand; the index may be cut"},
    {"index_select", "", index_select, kAsCalled, "the dim is needed whole in the operand; the index may be cut"},
    {"embedding", "", embedding, kAsCalled, "rows of the table are needed whole; its columns and the index may be cut"},
});
// clang-format on

}  // namespace

std::span<const RuledRow> ruled_rows() { return kRows; }

}  // namespace hyper_parallel
