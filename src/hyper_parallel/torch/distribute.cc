// `distribute`, declared in dtensor.h: from a whole tensor to its parts.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/placement/one_holder.h"
#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/torch/dtensor.h"
#include "hyper_parallel/torch/executor.h"
#include "hyper_parallel/torch/mesh_check.h"

namespace hyper_parallel {
namespace {

std::vector<DimSplit> replicated(int64_t mesh_ndim) {
  return std::vector<DimSplit>(static_cast<size_t>(mesh_ndim), Replicate{});
}

void check_source(int64_t source, int64_t size, const std::string& name) {
  HP_CHECK(source >= 0 && source < size, kOutOfRange, "distribute: source ", source, " is out of range for mesh dim '",
           name, "' of size ", size, "; it counts inside the group");
}

/// Who holds the values before they are spread, as a distribution: the one holder along the ragged mesh dim for each
/// coordinate of the others, or the one holder of all, on the mesh laid flat.
Distribution held_by_source(const Layout& layout, const Dims& shape, int64_t source) {
  const DeviceMesh& mesh = layout.mesh();
  if (layout.is_ragged()) {
    const int64_t mesh_dim = layout.ragged_shard()->mesh_dim;
    check_source(source, mesh.size(mesh_dim), mesh.names()[static_cast<size_t>(mesh_dim)]);
    std::vector<DimSplit> splits = replicated(mesh.ndim());
    splits[static_cast<size_t>(mesh_dim)] = one_holder(source, mesh.size(mesh_dim));
    return Distribution(mesh, std::move(splits), shape);
  }
  Dims coordinate(static_cast<size_t>(mesh.ndim()), source);
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim)
    check_source(source, mesh.size(dim), mesh.names()[static_cast<size_t>(dim)]);
  const int64_t holder = *mesh.position(mesh.rank_at(coordinate));
  return Distribution(mesh.flatten(), {one_holder(holder, mesh.size())}, shape);
}

/// A ragged split needs a dim to cut: a scalar is laid out as one row.
Dims at_least_1d(const Dims& shape) { return shape.empty() ? Dims{1} : shape; }

Plan spreading_plan(const Layout& layout, const Dims& shape, std::optional<int64_t> source) {
  const Distribution target(layout, shape);
  const Distribution whole(layout.mesh(), replicated(layout.mesh().ndim()), shape);
  return plan_distribution(source ? held_by_source(layout, shape, *source) : whole, target);
}

/// This rank's part, in storage of its own.
at::Tensor local_part(const at::Tensor& tensor, const MeshCommunicator& mesh, const Plan& plan) {
  const RankPlan own = rank_plan(plan, mesh.rank());
  const int64_t target_numel = checked_product(own.target_shape);
  // Only the holder's values count; the storage of the others is empty under the plan's source.
  const bool holds = (own.steps.empty() ? target_numel : own.steps.front().source_numel) > 0;
  const at::Tensor held = holds ? tensor : tensor.flatten().narrow(0, 0, 0);
  if (!own.steps.empty()) return execute(own, held, mesh);
  // The holder's part is the whole tensor and that of the others nothing.
  return at::_unsafe_view(held.clone(at::MemoryFormat::Contiguous), {own.target_shape.data(), own.target_shape.size()});
}

}  // namespace

DTensor distribute(const at::Tensor& tensor, const MeshCommunicator& mesh, std::vector<Placement> placements,
                   std::optional<int64_t> source) {
  HP_CHECK(tensor.defined(), kType, "distribute: tensor is undefined");
  HP_CHECK(tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested(), kType,
           "distribute: tensor is ", c10::str(tensor.layout()), tensor.is_quantized() ? ", quantized," : "",
           tensor.is_nested() ? ", nested," : "", " but must be a dense tensor");
  const std::vector<int64_t> shape = tensor.sizes().vec();
  const Layout layout = Layout(mesh.mesh(), std::move(placements)).folded(tensor.dim());
  check_shape(layout, shape);
  HP_CHECK(!layout.has_partial(), kInvalidArgument, "distribute: placements ", short_text(layout.placements()),
           " hold Partial, but a whole tensor is no share of a pending reduction");
  const Plan plan = spreading_plan(layout, at_least_1d(Dims(shape)), source);
  if (source) {
    check_mesh_together(
        mesh, "distribute", [] {}, [&] { return str_cat(describe(layout, shape, tensor), " from ", *source); });
  }
  const at::NoGradGuard no_grad;
  at::Tensor local = mesh.is_member() ? local_part(tensor.detach().resolve_conj().resolve_neg(), mesh, plan)
                                      : at::empty({0}, tensor.options());
  if (tensor.dim() == 0 && mesh.is_member()) local = at::_unsafe_view(local, at::IntArrayRef{});
  if (tensor.requires_grad()) local.requires_grad_();
  return DTensor::unchecked(std::move(local), mesh, layout, shape);
}

}  // namespace hyper_parallel
