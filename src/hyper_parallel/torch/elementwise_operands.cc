#include "hyper_parallel/torch/elementwise_operands.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/geometry/ragged_split.h"
#include "hyper_parallel/torch/operand_checks.h"
#include "hyper_parallel/torch/redistribute_local.h"

namespace hyper_parallel {
namespace {

bool splits_tensor(const Placement& placement) { return is_shard(placement) || is_ragged_shard(placement); }

bool is_replicated(const DTensor& tensor) { return std::ranges::all_of(tensor.placements(), is_replicate); }

/// The whole element on every rank: it can meet a tensor of any layout.
bool is_one_element(const DTensor& tensor) { return is_replicated(tensor) && tensor.numel() == 1; }

/// Of the operands the first of the highest precedence is the frame.
int precedence(const DTensor& tensor) { return tensor.layout().is_ragged() ? 2 : is_one_element(tensor) ? 0 : 1; }

/// Both ragged on the same mesh and of the same shape: whether every rank owns the same run.
bool same_runs(const DTensor& a, const DTensor& b) {
  const RaggedShardInfo& left = *a.layout().ragged_shard();
  const RaggedShardInfo& right = *b.layout().ragged_shard();
  return left.mesh_dim == right.mesh_dim &&
         same_split(RaggedSplit(left.placement, a.shape()), RaggedSplit(right.placement, b.shape()));
}

/// The one-element `tensor`, as it meets the frame's local tensor.
at::Tensor one_element(const at::Tensor& tensor, const DTensor& frame) {
  at::Tensor element = tensor;
  const bool member = frame.mesh().is_member();
  if (member && at::GradMode::is_enabled() && element.requires_grad()) {
    std::vector<Placement> whole(frame.placements().size(), Replicate{});
    std::vector<Placement> pending = whole;
    for (size_t dim = 0; dim < pending.size(); ++dim) {
      if (splits_tensor(frame.placements()[dim])) pending[dim] = Partial(ReduceOp::kSum);
    }
    const Layout everywhere = frame.layout().with_placements(std::move(whole));
    element = redistribute_local(
        element,
        {everywhere, everywhere, everywhere.with_placements(std::move(pending)), Dims(std::span(tensor.sizes()))},
        frame.mesh());
  }
  // Flat storage has one dim, whatever the frame has.
  const bool flat = frame.layout().is_ragged() || !member;
  return flat && element.dim() > 1 ? element.reshape({1}) : element;
}

/// The tensor's local part; outside the mesh, where that has one dim whatever the tensor has, a one for one of no
/// dims, so that torch finds the same dtypes there.
at::Tensor operand_of(const DTensor& tensor, const BoundArgument& argument) {
  return tensor.ndim() == 0 && !argument.parameter->written ? element_of(tensor) : tensor.local();
}

at::Tensor aligned_plain(const Operation& operation, const BoundArgument& argument, const DTensor& frame) {
  const at::Tensor& tensor = *argument.value->plain_tensor();
  check_one_element(operation, argument.parameter->name, *argument.value,
                    str_cat("distribute it with placements ", short_text(frame.placements())));
  HP_CHECK(tensor.dim() <= frame.ndim(), kInvalidArgument, place(operation, argument.parameter->name), " is ",
           argument.value->describe(), ", which has more dims than the DTensor of shape ", tuple_text(frame.shape()),
           "; reshape it to ()");
  return one_element(tensor, frame);
}

at::Tensor aligned_with_ragged(const Operation& operation, const BoundArgument& argument, const DTensor& frame) {
  const DTensor& tensor = *argument.value->dtensor();
  HP_CHECK(tensor.shape() == frame.shape(), kInvalidArgument, place(operation, argument.parameter->name), " has shape ",
           tuple_text(tensor.shape()), " but the ragged operand has ", tuple_text(frame.shape()),
           "; beside a ragged DTensor shapes must be equal");
  if (tensor.layout().is_ragged()) {
    HP_CHECK(same_runs(tensor, frame), kInvalidArgument, place(operation, argument.parameter->name),
             " with placements ", short_text(tensor.placements()), " lies on other ranks' runs of shape ",
             tuple_text(frame.shape()), " than ", short_text(frame.placements()),
             "; redistribute one to the other's placements");
    return tensor.local();
  }
  HP_CHECK(is_replicated(tensor), kInvalidArgument, place(operation, argument.parameter->name), " has placements ",
           short_text(tensor.placements()), " but beside a ragged operand with ", short_text(frame.placements()),
           " it must own the same runs or be Replicate(); redistribute it");
  return tensor.redistribute(frame.placements()).local();
}

at::Tensor aligned_dtensor(const Operation& operation, const BoundArgument& argument, const DTensor& frame) {
  const DTensor& tensor = *argument.value->dtensor();
  check_same_rank(operation, argument.parameter->name, tensor, frame);
  const bool same_shape = tensor.shape() == frame.shape();
  if (same_shape && tensor.layout() == frame.layout()) return operand_of(tensor, argument);
  HP_CHECK(tensor.layout().mesh() == frame.layout().mesh(), kInvalidArgument,
           place(operation, argument.parameter->name), " lies on ", to_string(tensor.layout().mesh()),
           " but another operand on ", to_string(frame.layout().mesh()), "; the operands' meshes must be equal");
  if (!same_shape && is_one_element(tensor) && tensor.ndim() <= frame.ndim()) {
    return one_element(element_of(tensor), frame);
  }
  if (frame.layout().is_ragged()) return aligned_with_ragged(operation, argument, frame);
  HP_CHECK(same_shape, kUnimplemented, place(operation, argument.parameter->name), " has shape ",
           tuple_text(tensor.shape()), " but another operand has ", tuple_text(frame.shape()),
           "; broadcasting of DTensors is not supported");
  raise(ErrorCode::kUnimplemented, place(operation, argument.parameter->name), " has placements ",
        short_text(tensor.placements()), " but another operand has ", short_text(frame.placements()),
        "; operands are not aligned: redistribute one to the other's placements");
}

}  // namespace

const DTensor& frame_of(const Operation& operation, const BoundArguments& arguments) {
  const DTensor* frame = nullptr;
  const BoundArgument* written = nullptr;
  for (const BoundArgument& argument : arguments) {
    if (argument.parameter->written) written = &argument;
    const DTensor* tensor = argument.value == nullptr ? nullptr : argument.value->dtensor();
    if (tensor != nullptr && (frame == nullptr || precedence(*tensor) > precedence(*frame))) frame = tensor;
  }
  HP_CHECK(frame != nullptr, kType, "operation '", operation.name, "' was given no DTensor");
  if (written == nullptr || written->value->dtensor() == frame) return *frame;
  const DTensor* target = written->value->dtensor();
  HP_CHECK(target != nullptr, kType, place(operation, written->parameter->name), " is written and is ",
           written->value->describe(), ", but beside a DTensor it must be a DTensor");
  // A rule lays the others out as it lies.
  if (!frame->layout().is_ragged()) return *target;
  raise(ErrorCode::kInvalidArgument, place(operation, written->parameter->name), " is written, but its shape ",
        tuple_text(target->shape()), " and placements ", short_text(target->placements()),
        " are not the result's: shape ", tuple_text(frame->shape()), ", placements ", short_text(frame->placements()));
}

at::Tensor element_of(const DTensor& tensor) {
  if (tensor.mesh().is_member()) return tensor.local();
  const at::Tensor& local = tensor.local();
  const bool differentiable = c10::isFloatingType(local.scalar_type()) || c10::isComplexType(local.scalar_type());
  const at::Tensor one = differentiable ? local.sum().add(1) : at::ones({}, local.options());
  return tensor.ndim() == 0 ? one : one.reshape({1});
}

at::Tensor aligned_local(const Operation& operation, const BoundArgument& argument, const DTensor& frame) {
  const DTensor* tensor = argument.value->dtensor();
  if (tensor == &frame) return operand_of(frame, argument);
  if (tensor == nullptr) return aligned_plain(operation, argument, frame);
  at::Tensor local = aligned_dtensor(operation, argument, frame);
  // Outside the mesh locals without elements may differ in their sizes.
  const bool foreign = local.sizes() != frame.local().sizes() && local.numel() == 0 && !frame.mesh().is_member();
  return foreign ? local.reshape(frame.local().sizes()) : local;
}

}  // namespace hyper_parallel
