#include "hyper_parallel/torch/dtensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/geometry/distribution.h"
#include "hyper_parallel/placement/one_holder.h"
#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/torch/executor.h"
#include "hyper_parallel/torch/extreme_ties.h"
#include "hyper_parallel/torch/gradient_frame.h"
#include "hyper_parallel/torch/gradient_sum.h"
#include "hyper_parallel/torch/local_shape.h"
#include "hyper_parallel/torch/mesh_check.h"
#include "hyper_parallel/torch/redistribute_local.h"
#include "hyper_parallel/torch/share_node.h"

namespace hyper_parallel {
namespace {

Layout all_replicated(const DeviceMesh& mesh) {
  return Layout(mesh, std::vector<Placement>(static_cast<size_t>(mesh.ndim()), Replicate{}));
}

void check_kind(const at::Tensor& local) {
  HP_CHECK(local.defined(), kType, "from_local: local is undefined");
  HP_CHECK(local.layout() == at::kStrided && !local.is_quantized() && !local.is_nested(), kType,
           "from_local: local is ", c10::str(local.layout()), local.is_quantized() ? ", quantized," : "",
           local.is_nested() ? ", nested," : "", " but must be a dense tensor");
  HP_CHECK(!local.is_conj() && !local.is_neg(), kInvalidArgument,
           "from_local: local is a lazy conjugate or negative; call resolve_conj() or resolve_neg() on it");
}

/// The shape that the ranks' local sizes make together. Telling each other these sizes is communication: what the ranks
/// are about to do is compared before.
std::vector<int64_t> agreed_shape(const at::Tensor& local, const Layout& layout, const MeshCommunicator& mesh) {
  check_mesh_together(
      mesh, "from_local", [&] { check_kind(local); },
      [&] {
        return str_cat("no shape, ", local.dim(), " dims, ", c10::toString(local.scalar_type()), ", ",
                       short_text(layout.placements()));
      });
  return infer_global_shape(local, layout, mesh);
}

/// `local` in the graph of the library. What a rank has computed of its own is a share like those of operations; a leaf
/// stays the leaf that it is.
at::Tensor entered(const at::Tensor& local, const MeshCommunicator& mesh, const Layout& layout,
                   const std::vector<int64_t>& shape) {
  if (!layout.has_partial() || local.is_leaf()) return local;
  return behind_share_node(local, layout, Dims(shape), linear_partial_dims(layout), mesh);
}

void check_one_element(const DTensor& tensor, std::string_view operation) {
  HP_CHECK(tensor.numel() == 1, kInvalidArgument, operation, " takes a tensor of one element but this one has shape ",
           tuple_text(tensor.shape()));
}

}  // namespace

DTensor::DTensor(at::Tensor local, MeshCommunicator mesh, Layout layout, std::vector<int64_t> shape)
    : local_(std::move(local)),
      communicator_(std::move(mesh)),
      layout_(std::move(layout)),
      shape_(std::move(shape)),
      gradient_sum_(std::make_shared<GradientSum>()) {}

DTensor DTensor::unchecked(at::Tensor local, MeshCommunicator mesh, Layout layout, std::vector<int64_t> shape) {
  return DTensor(std::move(local), std::move(mesh), std::move(layout), std::move(shape));
}

DTensor DTensor::from_local(const at::Tensor& local, const MeshCommunicator& mesh, std::vector<Placement> placements,
                            const std::optional<std::vector<int64_t>>& shape) {
  const Layout layout(mesh.mesh(), std::move(placements));
  if (!shape) check_shape_can_be_inferred(layout);
  const std::vector<int64_t> global = shape ? *shape : agreed_shape(local, layout, mesh);
  const Layout folded = layout.folded(static_cast<int64_t>(global.size()));
  check_shape(folded, global);
  check_mesh_together(
      mesh, "from_local",
      [&] {
        check_kind(local);
        check_local(local, folded, global, mesh.rank());
      },
      [&] { return describe(folded, global, local); });
  return DTensor(mesh.is_member() ? entered(local, mesh, folded, global) : local, mesh, folded, global);
}

int64_t DTensor::numel() const { return checked_product(shape_); }

DTensor& DTensor::requires_grad_() {
  local_.requires_grad_();
  return *this;
}

at::Tensor DTensor::to_local(const std::optional<std::vector<Placement>>& grad_placements) const {
  const Layout incoming = outside_gradient_layout(layout_, grad_placements, ndim());
  if (!communicator_.is_member()) return local_;
  return redistribute_local(local_, {layout_, layout_, incoming, Dims(shape_)}, communicator_);
}

DTensor DTensor::redistribute(std::vector<Placement> placements) const {
  return redistribute(layout_.mesh(), std::move(placements));
}

DTensor DTensor::redistribute(const DeviceMesh& mesh, std::vector<Placement> placements) const {
  return redistribute_to(Layout(mesh, std::move(placements)).folded(ndim()));
}

DTensor DTensor::redistribute_to(const Layout& target) const {
  if (target == layout_) return *this;
  const MeshCommunicator onto =
      target.mesh() == layout_.mesh() ? communicator_ : communicator_.with_mesh(target.mesh());
  const Dims shape(shape_);
  if (!communicator_.is_member()) {
    plan_redistribution(layout_, target, shape);  // raises here what it raises on the ranks of the mesh
    return DTensor(local_, onto, target, shape_);
  }
  communicator_.plans().get(layout_, target, shape, communicator_.rank());
  check_mesh_together(
      communicator_, "redistribute", [] {},
      [&] { return str_cat(describe(layout_, shape_, local_), " to ", short_text(target.placements())); });
  const Redistribution move{layout_, target, gradient_layout(target), shape};
  DTensor result(redistribute_local(local_, move, communicator_, ties()), onto, target, shape_);
  if (!result.requires_grad()) return result;
  at::Tensor counts = redistribute_ties(local_, ties(), move, communicator_);
  if (counts.defined()) result.set_ties(std::move(counts));
  return result;
}

at::Tensor DTensor::full_tensor(const std::optional<std::vector<Placement>>& grad_placements) const {
  const Layout target = all_replicated(layout_.mesh());
  const Layout incoming = outside_gradient_layout(target, grad_placements, ndim());
  if (!communicator_.is_member()) return local_;
  check_mesh_together(communicator_, "full_tensor", [] {}, [&] { return describe(layout_, shape_, local_); });
  return redistribute_local(local_, {layout_, target, incoming, Dims(shape_)}, communicator_, ties());
}

at::Tensor DTensor::ties() const { return ties_ ? ties_->of(local_) : at::Tensor(); }

void DTensor::set_ties(at::Tensor counts) { ties_ = std::make_shared<const ExtremeTies>(std::move(counts), local_); }

void DTensor::backward() const {
  check_one_element(*this, "backward");
  if (layout_.has_partial()) {
    // The gradient of a pending share depends on how it is reduced, which the redistribution knows.
    redistribute_to(gradient_layout(layout_)).backward();
    return;
  }
  local_.backward(at::ones_like(local_));
}

std::optional<DTensor> DTensor::grad() const {
  if (!local_.grad().defined()) return std::nullopt;
  return GradientFrame(*this).dtensor_of(local_.grad());
}

DTensor DTensor::detach() const { return DTensor(local_.detach(), communicator_, layout_, shape_); }

at::Scalar DTensor::item() const {
  check_one_element(*this, "item");
  const at::NoGradGuard no_grad;
  HP_CHECK(communicator_.is_member(), kFailedPrecondition, "item: rank ", communicator_.rank(), " is outside ",
           to_string(layout_.mesh()), " and has no value");
  return full_tensor().item();
}

DTensor DTensor::operator[](int64_t index) const {
  HP_CHECK(ndim() != 1, kUnimplemented,
           "x[i] of a 1-D DTensor is not supported; redistribute it to Replicate(), or take to_local()");
  HP_CHECK(ndim() > 1, kOutOfRange, "x[i] of a 0-D DTensor: there is no dim to index");
  std::optional<size_t> sharded;
  for (size_t dim = 0; dim < placements().size(); ++dim) {
    if (placements()[dim] == Placement(Shard(0)) && !sharded) {
      sharded = dim;
    } else {
      HP_CHECK(is_replicate(placements()[dim]), kUnimplemented,
               "x[i] takes a DTensor with one Shard(0) and Replicate() beside, not ", short_text(placements()),
               "; redistribute it first");
    }
  }
  HP_CHECK(sharded.has_value(), kUnimplemented, "x[i] takes a DTensor with one Shard(0), not ",
           short_text(placements()), "; take to_local()[i] of a replicated one");
  HP_CHECK(index >= -shape_[0] && index < shape_[0], kOutOfRange, "x[i]: index ", index, " is out of range for ",
           shape_[0], " rows");
  if (index < 0) index += shape_[0];
  const int64_t mesh_dim = static_cast<int64_t>(*sharded);
  return row_of(index, mesh_dim);
}

DTensor DTensor::row_of(int64_t index, int64_t mesh_dim) const {
  const int64_t ranks = layout_.mesh().size(mesh_dim);
  const int64_t owner = index / ceil_div(shape_[0], ranks);
  std::vector<Placement> placements(layout_.placements().size(), Replicate{});
  placements[static_cast<size_t>(mesh_dim)] = one_holder(owner, ranks);
  const std::vector<int64_t> shape(shape_.begin() + 1, shape_.end());
  const Layout layout = layout_.with_placements(std::move(placements));
  const auto coordinate = layout_.mesh().coordinate(communicator_.rank());
  const bool owns = coordinate && (*coordinate)[static_cast<size_t>(mesh_dim)] == owner;
  // Elsewhere a view of no rows, so that errors and gradients are those of the owner.
  const at::Tensor row = owns ? local_.select(0, index - owner * ceil_div(shape_[0], ranks)) : local_.narrow(0, 0, 0);
  const auto check_contiguous = [&] {
    HP_CHECK(row.is_contiguous(), kInvalidArgument,
             "x[i]: the rows of this rank's local tensor are not contiguous, strides ", tuple_text(local_.strides()));
  };
  check_mesh_together(communicator_, "x[i]", check_contiguous,
                      [&] { return str_cat(index, " of ", describe(layout_, shape_, local_)); });
  return DTensor(row.view({-1}), communicator_, layout, shape);
}

std::string to_string(const DTensor& tensor) {
  std::vector<std::string> names;
  for (const std::string& name : tensor.layout().mesh().names()) names.push_back(str_cat("'", name, "'"));
  return str_cat("DTensor(shape=", tuple_text(tensor.shape()), ", dtype=", c10::toString(tensor.dtype()),
                 ", placements=", short_text(tensor.placements()), ", mesh=", tuple_text(names),
                 ", local=", tuple_text(tensor.local().sizes()), ")");
}

}  // namespace hyper_parallel
