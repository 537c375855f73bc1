#include "hyper_parallel/torch/redistribute_local.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/executor.h"
#include "hyper_parallel/torch/mesh_check.h"
#include "hyper_parallel/torch/scalar_dtype.h"

namespace hyper_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor run_plan(const at::Tensor& local, const Layout& source, const Layout& target, const Dims& shape,
                    const MeshCommunicator& communicator) {
  return execute(*communicator.plans().get(source, target, shape, communicator.rank()), local, communicator);
}

/// How many cells hold a max or min, where `move` resolves it: on this rank, and on all ranks that it resolves.
struct Holders {
  at::Tensor own;
  at::Tensor all;
};

Holders holders_of(const at::Tensor& share, const at::Tensor& ties, const Redistribution& move,
                   const ExtremeGradient& layouts, const MeshCommunicator& communicator) {
  const at::NoGradGuard constant;
  const at::Tensor extreme = run_plan(share, move.source, layouts.reduced, move.shape, communicator);
  at::Tensor holds = at::eq(share, extreme).to(wide_dtype(share.scalar_type()));
  // A NaN equals nothing; whether a share of one stands for cells is for the ties to say.
  if (ties.defined()) holds = at::where(holds.logical_or(share.isnan()), ties, at::zeros_like(ties));
  return {holds, run_plan(holds, layouts.counted, layouts.everywhere, move.shape, communicator)};
}

/// A redistribution that the autograd graph can keep.
struct SavedMove : torch::CustomClassHolder {
  SavedMove(Redistribution move_, MeshCommunicator communicator_, at::Tensor ties_)
      : move(std::move(move_)), communicator(std::move(communicator_)), ties(std::move(ties_)) {}

  Redistribution move;
  MeshCommunicator communicator;
  at::Tensor ties;  // of the share that the move takes; undefined if each counts for one
};

struct RedistributeLocal : torch::autograd::Function<RedistributeLocal> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& local,
                            const c10::intrusive_ptr<SavedMove>& saved) {
    const Redistribution& move = saved->move;
    context->saved_data["move"] = c10::IValue::make_capsule(saved);
    if (extreme_gradient(move)) context->save_for_backward({local});
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
    if (const auto layouts = extreme_gradient(move)) {
      const at::Tensor share = context->get_saved_variables()[0];
      const Holders holders = holders_of(share, saved->ties, move, *layouts, saved->communicator);
      const at::Tensor gradient = redistribute_local(gradients[0], backward_of(move), saved->communicator);
      // A constant to the graph: it changes nowhere but where the holders do.
      return {gradient.mul(holders.own.div(holders.all).to(share.scalar_type())), {}};
    }
    at::Tensor gradient = redistribute_local(gradients[0], backward_of(move), saved->communicator);
    if (const int64_t divisor = gradient_divisor(move); divisor != 1) gradient = gradient.div(divisor);
    return {gradient, {}};
  }
};

}  // namespace

at::Tensor redistribute_ties(const at::Tensor& share, const at::Tensor& ties, const Redistribution& move,
                             const MeshCommunicator& communicator) {
  if (!ties.defined() || !move.target.has_partial() || parts_of(move).size() != 1) return {};
  const at::NoGradGuard constant;
  const auto layouts = extreme_gradient(move);
  if (!layouts) return run_plan(ties, move.source, move.target, move.shape, communicator);
  const Holders holders = holders_of(share, ties, move, *layouts, communicator);
  return run_plan(holders.all, layouts->reduced, move.target, move.shape, communicator);
}

at::Tensor redistribute_local(const at::Tensor& local, const Redistribution& redistribution,
                              const MeshCommunicator& communicator, const at::Tensor& ties) {
  const Redistribution& move = redistribution;
  HP_CHECK(!local._fw_grad(/*level=*/0).defined(), kUnimplemented,
           "a forward-mode derivative does not go through a redistribution; use backward");
  const bool in_graph = at::GradMode::is_enabled() && local.requires_grad();
  if (in_graph ? is_identity(move) : move.source == move.target) return local;
  if (!in_graph) return run_plan(local, move.source, move.target, move.shape, communicator);
  at::Tensor result = local;
  at::Tensor counts = ties;
  for (Redistribution& part : parts_of(move)) {
    auto saved = c10::make_intrusive<SavedMove>(std::move(part), communicator, std::exchange(counts, {}));
    result = RedistributeLocal::apply(result, std::move(saved));
  }
  return result;
}

}  // namespace hyper_parallel
