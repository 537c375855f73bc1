#include "hyper_parallel/torch/norm.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/operations/dims_argument.h"
#include "hyper_parallel/operations/propagate.h"
#include "hyper_parallel/operations/reduction_rule.h"
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

/// How the norms over `dims` lie, before they are combined: Partial where a mesh dim cuts one of these.
Propagation propagation_of(const Operation& operation, const DTensor& x, std::span<const int64_t> dims, KeepDims keep) {
  if (x.layout().is_ragged()) refuse_operation(operation.name, x);
  Rule rule = reduction_rule(Dims(x.shape()), dims, keep, ReduceOp::kSum);
  rule.pending = {};
  const GivenOperand given{"self", x.layout(), static_cast<int64_t>(c10::elementSize(x.dtype()))};
  return propagate(operation.name, rule, std::span(&given, 1));
}

/// The norm of this rank's cells; 0 where it has none.
at::Tensor local_norm(const at::Tensor& local, const NormOptions& options, at::IntArrayRef dims, KeepDims keep) {
  const bool keeps = keep == KeepDims::kYes;
  const bool empty = std::ranges::any_of(dims, [&](int64_t dim) { return local.size(dim) == 0; });
  if (empty) return at::sum(local, dims, keeps, options.dtype);  // a norm of order inf takes no empty tensor
  return at::linalg_vector_norm(local, options.order, dims, keeps, options.dtype);
}

/// From norms of parts, `parts` with one more dim at the end of size 1, to the norms of the whole.
DTensor combined(const at::Tensor& parts, const DTensor& x, const Layout& lying, std::vector<int64_t> shape,
                 double order) {
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

std::vector<Group> groups_of(const Operation& operation, const std::vector<const DTensor*>& tensors) {
  std::vector<Group> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const DTensor& x = *tensors[i];
    const Layout lying = propagation_of(operation, x, all_dims(x), KeepDims::kNo).results.front();
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
  const Layout lying = propagation_of(operation, *x, dims, keep).results.front();
  const std::vector<int64_t> result =
      reduction_rule(shape, dims, keep, ReduceOp::kSum).results.front().shape.to_vector();
  if (!x->mesh().is_member()) return {DTensor::unchecked(x->local(), x->mesh(), gradient_layout(lying), result)};
  const at::Tensor local = local_norm(x->local(), options, dims, keep);
  if (!lying.has_partial()) return {DTensor::unchecked(local, x->mesh(), lying, result)};
  return {combined(local.unsqueeze(-1), *x, lying, result, options.order)};
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
  for (const Group& group : groups_of(operation, tensors)) {
    const DTensor& first = *tensors[group.members.front()];
    std::vector<at::Tensor> locals;
    for (const size_t i : group.members) {
      const DTensor& x = *tensors[i];
      locals.push_back(x.mesh().is_member() ? local_norm(x.local(), options, all_dims(x), KeepDims::kNo)
                                            : at::sum(x.local(), options.dtype));
    }
    const at::Tensor stacked = at::stack(locals);
    const std::vector<int64_t> shape{static_cast<int64_t>(locals.size())};
    const DTensor together = group.lying.has_partial()
                                 ? combined(stacked.unsqueeze(-1), first, group.lying, shape, options.order)
                                 : DTensor::unchecked(stacked, first.mesh(), group.lying, shape);
    for (size_t i = 0; i < group.members.size(); ++i) {
      const at::Tensor own = first.mesh().is_member() ? together.local()[static_cast<int64_t>(i)] : together.local();
      norms[group.members[i]] = DTensor::unchecked(own, first.mesh(), together.layout(), {});
    }
  }
  std::vector<DTensor> results;
  for (std::optional<DTensor>& norm : norms) results.push_back(std::move(*norm));
  return results;
}

}  // namespace hyper_parallel
