#include "hyper_parallel/torch/norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/operations/dims_argument.h"
#include "hyper_parallel/operations/propagate.h"
#include "hyper_parallel/operations/reduction_rule.h"
#include "hyper_parallel/torch/extreme_ties.h"
#include "hyper_parallel/torch/operation_rules.h"
#include "hyper_parallel/torch/redistribute_local.h"

namespace hyper_parallel {
namespace {

struct NormOptions {
  double order;
  std::optional<at::ScalarType> dtype;
};

NormOptions options_of(const Operation& operation, const BoundArguments& arguments) {
  const NormOptions options{RuleArguments(arguments, {}).number("ord"), find_dtype(arguments)};
  HP_CHECK(options.order > 0, kUnimplemented, "operation '", operation.name, "': ord is ", options.order,
           ", but norms of parts combine for a positive one alone");
  return options;
}

/// What combines norms of parts: that of order infinity is the max of theirs.
ReduceOp reduction_of(const NormOptions& options) {
  return std::isinf(options.order) ? ReduceOp::kMax : ReduceOp::kSum;
}

/// How the norms over `dims` lie, before they are combined: Partial where a mesh dim cuts one of these.
Propagation propagation_of(const Operation& operation, const DTensor& x, std::span<const int64_t> dims, KeepDims keep,
                           const NormOptions& options) {
  if (x.layout().is_ragged()) refuse_operation(operation.name, x);
  Rule rule = reduction_rule(Dims(x.shape()), dims, keep, reduction_of(options));
  rule.pending = {};
  const GivenOperand given{"self", x.layout(), static_cast<int64_t>(c10::elementSize(x.dtype()))};
  return propagate(operation.name, rule, std::span(&given, 1));
}

/// The norm of this rank's cells; 0 where it has none. A dtype that torch refuses it refuses on both.
at::Tensor local_norm(const at::Tensor& local, const NormOptions& options, at::IntArrayRef dims, KeepDims keep) {
  const bool keeps = keep == KeepDims::kYes;
  std::vector<int64_t> sizes = local.sizes().vec();
  for (const int64_t dim : dims) sizes[static_cast<size_t>(dim)] = std::max<int64_t>(local.size(dim), 1);
  if (local.sizes() == at::IntArrayRef(sizes)) {
    return at::linalg_vector_norm(local, options.order, dims, keeps, options.dtype);
  }
  // A norm of order inf takes no empty tensor: that of zeros, which the sum of nothing ties to the graph.
  const at::Tensor norm =
      at::linalg_vector_norm(at::zeros(sizes, local.options()), options.order, dims, keeps, options.dtype);
  return norm.add(at::sum(local.abs(), dims, keeps).to(norm.scalar_type()));
}

/// Outside the mesh no elements, of the dtype and in the graph as the norms inside are.
at::Tensor norm_outside(const at::Tensor& local, const NormOptions& options) {
  const at::Tensor norm = local_norm(local, options, {0}, KeepDims::kNo);
  return norm.expand({0});
}

/// How many cells of this rank have the greatest absolute value, `norms`.
at::Tensor greatest_cells(const at::Tensor& local, const at::Tensor& norms, at::IntArrayRef dims) {
  const at::NoGradGuard constant;
  return count_ties(local.abs().to(norms.scalar_type()), norms, dims, NanTies::kAll);
}

/// From the greatest absolute values of parts to those of the whole: shares of a max, which `count_cells` counts.
template <typename Count>
DTensor combined_greatest(const at::Tensor& parts, const DTensor& x, const Layout& lying, std::vector<int64_t> shape,
                          const Count& count_cells) {
  DTensor share = DTensor::unchecked(parts, x.mesh(), lying, std::move(shape));
  if (x.mesh().is_member() && share.requires_grad()) share.set_ties(count_cells());
  return share.redistribute(gradient_layout(lying).placements());
}

/// From norms of a finite order of parts to those of the whole.
DTensor combined(const at::Tensor& norms, const DTensor& x, const Layout& lying, std::vector<int64_t> shape,
                 double order) {
  const at::Tensor parts = norms.unsqueeze(-1);
  std::vector<Placement> cut = lying.placements();
  std::vector<Placement> whole = cut;
  int64_t count = 1;
  for (size_t dim = 0; dim < cut.size(); ++dim) {
    if (!is_partial(cut[dim])) continue;
    cut[dim] = Shard(static_cast<int64_t>(shape.size()));
    whole[dim] = Replicate{};
    count *= lying.mesh().size(static_cast<int64_t>(dim));
  }
  shape.push_back(count);
  const DTensor all =
      DTensor::unchecked(parts, x.mesh(), lying.with_placements(std::move(cut)), shape).redistribute(whole);
  shape.pop_back();
  const at::Tensor local = x.mesh().is_member() ? at::linalg_vector_norm(all.local(), order, -1) : all.local();
  return DTensor::unchecked(local, x.mesh(), all.layout(), std::move(shape));
}

std::vector<int64_t> all_dims(const DTensor& x) { return folded_dims({}, static_cast<size_t>(x.ndim())); }

/// Tensors of one call whose norms lie alike.
struct Group {
  Layout lying;
  std::vector<size_t> members;
};

/// The norms of a group's tensors in one, from this rank's.
DTensor combined_list(const DTensor& first, const Group& group, const std::vector<at::Tensor>& norms,
                      const std::vector<const DTensor*>& tensors, const NormOptions& options) {
  const at::Tensor stacked = at::stack(norms);
  std::vector<int64_t> shape{static_cast<int64_t>(norms.size())};
  if (!group.lying.has_partial()) return DTensor::unchecked(stacked, first.mesh(), group.lying, std::move(shape));
  if (reduction_of(options) == ReduceOp::kSum) {
    return combined(stacked, first, group.lying, std::move(shape), options.order);
  }
  return combined_greatest(stacked, first, group.lying, std::move(shape), [&] {
    std::vector<at::Tensor> counts;
    for (size_t i = 0; i < norms.size(); ++i) {
      const DTensor& x = *tensors[group.members[i]];
      counts.push_back(greatest_cells(x.local(), norms[i].detach(), all_dims(x)));
    }
    return at::stack(counts);
  });
}

std::vector<Group> groups_of(const Operation& operation, const std::vector<const DTensor*>& tensors,
                             const NormOptions& options) {
  std::vector<Group> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const DTensor& x = *tensors[i];
    const Layout lying = propagation_of(operation, x, all_dims(x), KeepDims::kNo, options).results.front();
    const auto alike = std::ranges::find_if(groups, [&](const Group& group) {
      return group.lying == lying && tensors[group.members.front()]->dtype() == x.dtype();
    });
    if (alike == groups.end()) {
      groups.push_back({lying, {i}});
    } else {
      alike->members.push_back(i);
    }
  }
  return groups;
}

}  // namespace

std::vector<DTensor> vector_norm(const Operation& operation, const BoundCall& call) {
  const NormOptions options = options_of(operation, call.arguments);
  const DTensor* x = call.arguments.front().value->dtensor();
  HP_CHECK(x != nullptr, kType, "operation '", operation.name, "' was given no DTensor");
  const Dims shape(x->shape());
  const RuleArguments arguments(call.arguments, std::span(&shape, 1));
  std::vector<int64_t> dims = folded_dims(arguments.integers("dim"), shape.size());
  std::erase_if(dims, [&](int64_t dim) { return dim >= x->ndim(); });
  const KeepDims keep = arguments.flag("keepdim") ? KeepDims::kYes : KeepDims::kNo;
  const Layout lying = propagation_of(operation, *x, dims, keep, options).results.front();
  const std::vector<int64_t> result =
      reduction_rule(shape, dims, keep, ReduceOp::kSum).results.front().shape.to_vector();
  if (!x->mesh().is_member()) {
    return {DTensor::unchecked(norm_outside(x->local(), options), x->mesh(), gradient_layout(lying), result)};
  }
  const at::Tensor local = local_norm(x->local(), options, dims, keep);
  if (!lying.has_partial()) return {DTensor::unchecked(local, x->mesh(), lying, result)};
  if (reduction_of(options) == ReduceOp::kSum) return {combined(local, *x, lying, result, options.order)};
  return {
      combined_greatest(local, *x, lying, result, [&] { return greatest_cells(x->local(), local.detach(), dims); })};
}

std::vector<DTensor> foreach_norm(const Operation& operation, const BoundCall& call) {
  const NormOptions options = options_of(operation, call.arguments);
  std::vector<const DTensor*> tensors;
  for (const Argument& item : *call.arguments.front().value->items()) {
    HP_CHECK(item.dtensor() != nullptr, kType, "operation '", operation.name, "': a list holds ", item.describe(),
             " beside DTensors");
    tensors.push_back(item.dtensor());
  }
  std::vector<std::optional<DTensor>> norms(tensors.size());
  for (const Group& group : groups_of(operation, tensors, options)) {
    const DTensor& first = *tensors[group.members.front()];
    std::vector<at::Tensor> locals;
    for (const size_t i : group.members) {
      const DTensor& x = *tensors[i];
      locals.push_back(x.mesh().is_member() ? local_norm(x.local(), options, all_dims(x), KeepDims::kNo)
                                            : local_norm(x.local(), options, {0}, KeepDims::kNo));
    }
    const DTensor together = combined_list(first, group, locals, tensors, options);
    for (size_t i = 0; i < group.members.size(); ++i) {
      // Outside the mesh no elements, in the graph as the results inside are.
      const at::Tensor own = first.mesh().is_member() ? together.local()[static_cast<int64_t>(i)]
                                                      : together.local().flatten().narrow(0, 0, 0);
      norms[group.members[i]] = DTensor::unchecked(own, first.mesh(), together.layout(), {});
    }
  }
  std::vector<DTensor> results;
  for (std::optional<DTensor>& norm : norms) results.push_back(std::move(*norm));
  return results;
}

}  // namespace hyper_parallel
