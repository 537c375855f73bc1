#include "hyper_parallel/torch/redistribute_local.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/eq.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/executor.h"
#include "hyper_parallel/torch/mesh_check.h"

namespace hyper_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The layout with each placement replaced by `change(placement)`.
template <typename Change>
Layout changed_layout(const Layout& layout, const Change& change) {
  std::vector<Placement> placements = layout.placements();
  for (Placement& placement : placements) placement = change(placement);
  return Layout::with_partial_beside_ragged(layout.mesh(), std::move(placements));
}

at::Tensor run_plan(const at::Tensor& local, const Layout& source, const Layout& target, const Dims& shape,
                    const MeshCommunicator& communicator) {
  return execute(*communicator.plans().get(source, target, shape, communicator.rank()), local, communicator);
}

bool pending(const Redistribution& move, size_t mesh_dim) {
  return is_partial(move.source.placements()[mesh_dim]) &&
         !(move.source.mesh() == move.target.mesh() &&
           move.source.placements()[mesh_dim] == move.target.placements()[mesh_dim]);
}

/// The op of the innermost pending reduction, nothing if none is pending.
std::optional<ReduceOp> innermost_op(const Redistribution& move) {
  for (size_t dim = move.source.placements().size(); dim-- > 0;) {
    if (pending(move, dim)) return std::get<Partial>(move.source.placements()[dim]).op;
  }
  return std::nullopt;
}

bool is_extreme(ReduceOp op) { return op == ReduceOp::kMax || op == ReduceOp::kMin; }

/// The source with its pending dims of the innermost op replicated: where the reduction of these alone leads.
Layout innermost_reduced(const Redistribution& move) {
  const std::optional<ReduceOp> op = innermost_op(move);
  std::vector<Placement> placements = move.source.placements();
  for (size_t dim = placements.size(); dim-- > 0;) {
    if (!pending(move, dim)) continue;
    if (std::get<Partial>(placements[dim]).op != *op) break;
    placements[dim] = Replicate{};
  }
  return move.source.with_placements(std::move(placements));
}

/// The product of the group sizes that pending averages divide by.
int64_t avg_divisor(const Redistribution& move) {
  int64_t divisor = 1;
  for (size_t dim = 0; dim < move.source.placements().size(); ++dim) {
    const auto* partial = std::get_if<Partial>(&move.source.placements()[dim]);
    if (partial != nullptr && partial->op == ReduceOp::kAvg && pending(move, dim)) {
      divisor *= move.source.mesh().size(static_cast<int64_t>(dim));
    }
  }
  return divisor;
}

/// What a rank's share of the gradient of a max or min is worth: 1 / (ranks that hold the extreme) where it holds it,
/// else 0. A constant to the graph: it changes nowhere but where the holders do.
at::Tensor extreme_weight(const at::Tensor& share, const Redistribution& move, const MeshCommunicator& communicator) {
  const at::NoGradGuard constant;
  const Layout reduced = innermost_reduced(move);
  const at::Tensor extreme = run_plan(share, move.source, reduced, move.shape, communicator);
  const at::Tensor holds = at::eq(share, extreme).to(share.scalar_type());
  const Layout counted = changed_layout(move.source, [&](const Placement& placement) {
    return is_partial(placement) ? Placement(Partial(ReduceOp::kSum)) : placement;
  });
  std::vector<Placement> everywhere = counted.placements();
  for (size_t dim = 0; dim < everywhere.size(); ++dim) {
    if (is_replicate(reduced.placements()[dim])) everywhere[dim] = Replicate{};
  }
  const at::Tensor holders =
      run_plan(holds, counted, counted.with_placements(std::move(everywhere)), move.shape, communicator);
  return holds.div(holders);
}

/// A redistribution that the autograd graph can keep.
struct SavedMove : torch::CustomClassHolder {
  SavedMove(Redistribution move_, MeshCommunicator communicator_)
      : move(std::move(move_)), communicator(std::move(communicator_)) {}

  Redistribution move;
  MeshCommunicator communicator;
};

struct RedistributeLocal : torch::autograd::Function<RedistributeLocal> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& local,
                            const c10::intrusive_ptr<SavedMove>& saved) {
    const Redistribution& move = saved->move;
    context->saved_data["move"] = c10::IValue::make_capsule(saved);
    const std::optional<ReduceOp> op = innermost_op(move);
    if (op && is_extreme(*op)) context->save_for_backward({local});
    const at::Tensor result = run_plan(local, move.source, move.target, move.shape, saved->communicator);
    // A function must not return its input as a tensor of its own graph node; a view shares the storage all the same.
    return result.is_same(local) ? local.view(local.sizes()) : result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = c10::static_intrusive_pointer_cast<SavedMove>(context->saved_data["move"].toCapsule());
    const Redistribution& move = saved->move;
    check_mesh_together(
        saved->communicator, "backward of redistribute", [] {},
        [&] {
          return str_cat(describe(move.incoming, move.shape, gradients[0]), " to ",
                         short_text(move.source.placements()));
        });
    // An undefined gradient has been made zeros by torch, so that this rank still enters the collectives.
    const Layout share_layout = gradient_layout(move.source);
    const Redistribution back{move.incoming, share_layout, gradient_layout(share_layout), move.shape};
    at::Tensor gradient = redistribute_local(gradients[0], back, saved->communicator);
    if (const int64_t divisor = avg_divisor(move); divisor != 1) gradient = gradient.div(divisor);
    const std::optional<ReduceOp> op = innermost_op(move);
    if (op && is_extreme(*op)) {
      gradient = gradient.mul(extreme_weight(context->get_saved_variables()[0], move, saved->communicator));
    }
    return {gradient, {}};
  }
};

/// True if a reduction of another op waits behind the innermost one: then they go one after the other, as their
/// gradients differ.
bool has_unlike_reductions(const Redistribution& move) {
  const std::optional<ReduceOp> op = innermost_op(move);
  for (size_t dim = 0; dim < move.source.placements().size(); ++dim) {
    if (!pending(move, dim)) continue;
    const ReduceOp other = std::get<Partial>(move.source.placements()[dim]).op;
    if (is_extreme(other) != is_extreme(*op) || (is_extreme(other) && other != *op)) return true;
  }
  return false;
}

}  // namespace

Layout gradient_layout(const Layout& layout) {
  if (!layout.has_partial()) return layout;
  return changed_layout(
      layout, [](const Placement& placement) { return is_partial(placement) ? Placement(Replicate{}) : placement; });
}

Layout leaving_layout(const Layout& layout) {
  return changed_layout(layout, [](const Placement& placement) {
    if (is_replicate(placement)) return Placement(Partial(ReduceOp::kSum));
    return is_partial(placement) ? Placement(Replicate{}) : placement;
  });
}

at::Tensor redistribute_local(const at::Tensor& local, const Redistribution& redistribution,
                              const MeshCommunicator& communicator) {
  const Redistribution& move = redistribution;
  HP_CHECK(!local._fw_grad(/*level=*/0).defined(), kUnimplemented,
           "a forward-mode derivative does not go through a redistribution; use backward");
  if (!at::GradMode::is_enabled() || !local.requires_grad()) {
    return run_plan(local, move.source, move.target, move.shape, communicator);
  }
  if (move.source == move.target && move.incoming == gradient_layout(move.source)) return local;
  if (has_unlike_reductions(move)) {
    const Layout between = innermost_reduced(move);
    const Redistribution first{move.source, between, gradient_layout(between), move.shape};
    const Redistribution rest{between, move.target, move.incoming, move.shape};
    return redistribute_local(redistribute_local(local, first, communicator), rest, communicator);
  }
  return RedistributeLocal::apply(local, c10::make_intrusive<SavedMove>(move, communicator));
}

}  // namespace hyper_parallel
