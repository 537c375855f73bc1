#include "hyper_parallel/torch/ruled_call.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/gradient_sum.h"
#include "hyper_parallel/torch/kernel_check.h"
#include "hyper_parallel/torch/operand_checks.h"
#include "hyper_parallel/torch/redistribute_local.h"
#include "hyper_parallel/torch/ruled_local.h"
#include "hyper_parallel/torch/ruled_operands.h"
#include "hyper_parallel/torch/ruled_plan.h"
#include "hyper_parallel/torch/ruled_reduction.h"
#include "hyper_parallel/torch/scalar_dtype.h"
#include "hyper_parallel/torch/share_node.h"

namespace hyper_parallel {
namespace {

using torch::jit::Stack;

bool is_differentiable(at::ScalarType dtype) { return c10::isFloatingType(dtype) || c10::isComplexType(dtype); }

std::vector<at::Tensor> tensors_of(Stack stack) {
  if (stack.size() == 1 && stack.front().isTensorList()) return stack.front().toTensorVector();
  std::vector<at::Tensor> tensors;
  for (c10::IValue& value : stack) tensors.push_back(std::move(value).toTensor());
  return tensors;
}

/// One call, from arguments to results.
class RuledCall {
 public:
  RuledCall(const Operation& operation, const BoundCall& call)
      : operation_(operation),
        call_(call),
        operands_(operation, call.arguments),
        plan_(plan_of(operation, call, operands_)) {}

  /// What only some ranks would find, those whose part has no cells; and that a write reaches what was viewed.
  void check() const {
    if (operation_.writes) check_reaches_base(operation_, operands_[0]);
    if (operation_.local == LocalCall::kExtreme && is_cut(*plan_)) check_neutral(operation_, operands_[0].dtype());
  }

  std::vector<DTensor> run() {
    check();
    if (!plan_->is_member) {
      check_without_cells(given_locals());
      return operation_.writes ? write_outside() : run_outside();
    }
    for (size_t i = 0; i < operands_.size(); ++i) locals_.push_back(prepared(i));
    check_without_cells(locals_);
    Stack stack = call_locally(prepared_call(locals_));
    if (operation_.writes) return {operands_[0]};
    std::vector<DTensor> made = results(tensors_of(std::move(stack)));
    if (!made.empty() && made.front().requires_grad()) count_ties_of(made);
    return made;
  }

 private:
  PreparedCall prepared_call(const std::vector<at::Tensor>& locals) const {
    return {operation_, call_, *plan_, operands_.shapes(), locals, operands_.first().mesh()};
  }

  /// The local tensor as the operation needs it; the collectives of the forward pass are here.
  at::Tensor prepared(size_t index) const {
    const DTensor& tensor = operands_[index];
    const PreparedOperand& prepared = plan_->propagation.operands[index];
    const Redistribution move{tensor.layout(), prepared.layout, prepared.gradient, operands_.shapes()[index]};
    // A tensor that stays as it lies while its gradient comes in shares may be taken so by other operations too.
    const bool enters = move.source == move.target && move.incoming != gradient_layout(move.source);
    at::Tensor local = enters ? tensor.gradient_sum().enter(tensor.local(), move, tensor.mesh())
                              : redistribute_local(tensor.local(), move, operands_.first().mesh());
    if (plan_->adds[index]) return local;
    // A product with zero would keep NaN, and a constant would have no place in the graph.
    return at::where(at::zeros({}, local.options().dtype(at::kBool)), local, at::zeros_like(local));
  }

  std::vector<DTensor> results(std::vector<at::Tensor> locals) const {
    HP_DCHECK(locals.size() == plan_->rule.results.size());
    std::vector<DTensor> results;
    results.reserve(locals.size());
    for (size_t i = 0; i < locals.size(); ++i) {
      const Dims& expected = plan_->local_shapes[i];
      HP_CHECK(std::ranges::equal(locals[i].sizes(), expected), kInternal, "internal error: operation '",
               operation_.name, "' gave a local result of shape ", tuple_text(locals[i].sizes()), " where the rule ",
               to_string(plan_->rule), " has ", tuple_text(expected));
      results.push_back(wrap(in_graph(with_all_operands(std::move(locals[i])), i), i));
      if (is_copied_view()) results.back().mark_copied_view();
    }
    return results;
  }

  /// Gives shares of a max or min the number of cells that they stand for, where this operation reduces, and where it
  /// moves such shares.
  void count_ties_of(std::vector<DTensor>& made) const {
    if (operation_.local == LocalCall::kExtreme) {
      const PreparedCall call = prepared_call(locals_);
      if (is_cut(*plan_)) made.front().set_ties(ties_of_extreme(call, made.front().local().detach()));
      return;
    }
    const auto has_ties = [&](const RuledOperands::Operand& operand) { return operand.tensor->ties().defined(); };
    if (!std::ranges::any_of(operands_.all(), has_ties)) return;
    const at::NoGradGuard constant;
    std::vector<at::Tensor> counts;
    for (size_t i = 0; i < operands_.size(); ++i) counts.push_back(ties_of_operand(i));
    counts = tensors_of(call_locally(prepared_call(counts)));
    for (size_t i = 0; i < made.size(); ++i) made[i].set_ties(std::move(counts[i]));
  }

  /// What stands for the local tensor of an operand where the counts are moved as the shares are.
  at::Tensor ties_of_operand(size_t index) const {
    const DTensor& tensor = operands_[index];
    const Layout& layout = plan_->propagation.operands[index].layout;
    if (!layout.has_partial()) return locals_[index];  // says where to take cells from
    const at::Tensor ties = tensor.ties();
    if (!ties.defined()) return at::ones_like(locals_[index], at::dtype(wide_dtype(tensor.dtype())));
    return redistribute_local(ties, {tensor.layout(), layout, layout, operands_.shapes()[index]}, tensor.mesh());
  }

  /// A view must show its operand's storage; a reshape may not.
  bool is_copied_view() const {
    if (!operation_.is_view || operation_.local == LocalCall::kReshape) return false;
    const DTensor& viewed = operands_[0];
    return viewed.is_copied_view() || viewed.layout() != plan_->propagation.operands.front().layout;
  }

  /// Where there are no cells, attention leaves its mask out of the graph: this rank would not come to the collective
  /// of the mask's gradient.
  at::Tensor with_all_operands(at::Tensor local) const {
    if (local.numel() > 0 || operation_.is_view || !is_differentiable(local.scalar_type())) return local;
    for (const at::Tensor& operand : locals_) {
      if (operand.requires_grad()) local = local.add(at::sum(operand).to(local.scalar_type()));
    }
    return local;
  }

  DTensor wrap(at::Tensor local, size_t index) const {
    return DTensor::unchecked(std::move(local), operands_.first().mesh(), plan_->propagation.results[index],
                              plan_->rule.results[index].shape.to_vector());
  }

  /// `local` where gradients of second order find what this rank does with its cells alone.
  at::Tensor in_graph(at::Tensor local, size_t index) const {
    const Layout& layout = plan_->propagation.results[index];
    if (!layout.has_partial()) return local;
    if (is_product_of_pending()) return behind_first_order_node(local, operation_.name);
    // The gradient of a max or min is weighed by rank where it is resolved, and becomes the rank's own there.
    std::vector<int64_t> cut = linear_partial_dims(layout);
    std::erase_if(cut, [&](int64_t dim) { return is_pending_on(static_cast<size_t>(dim)); });
    return behind_share_node(local, layout, plan_->rule.results[index].shape, cut, operands_.first().mesh());
  }

  bool is_pending_on(size_t mesh_dim) const {
    return std::ranges::any_of(plan_->propagation.operands, [&](const PreparedOperand& operand) {
      return is_partial(operand.layout.placements()[mesh_dim]);
    });
  }

  bool is_product_of_pending() const {
    if (plan_->rule.pending.carriers != Pending::Carriers::kOne) return false;
    bool pending = false;
    bool others = false;
    for (size_t i = 0; i < locals_.size(); ++i) {
      const bool carries = plan_->propagation.operands[i].layout.has_partial();
      pending = pending || carries;
      const bool is_factor = plan_->rule.operands[i].term == Operand::Term::kFactor;
      others = others || (!carries && is_factor && locals_[i].requires_grad());
    }
    return pending && others;
  }

  /// What kernels refuse of a part with cells, where one of this rank's has none.
  void check_without_cells(const std::vector<at::Tensor>& locals) const {
    if (operation_.is_view || operation_.local != LocalCall::kAsCalled) return;
    if (std::ranges::all_of(locals, [](const at::Tensor& local) { return local.numel() > 0; })) return;
    size_t next = 0;
    check_kernel(operation_, call_, [&](const BoundArgument&, const Argument&) { return locals[next++]; });
  }

  std::vector<at::Tensor> given_locals() const {
    std::vector<at::Tensor> locals;
    for (const RuledOperands::Operand& operand : operands_.all()) locals.push_back(operand.tensor->local());
    return locals;
  }

  /// On a rank outside the mesh: the empty tensors get the version and the place in the graph of those inside.
  std::vector<DTensor> write_outside() {
    for (size_t i = 0; i < operands_.size(); ++i) {
      const at::Tensor& local = operands_[i].local();
      locals_.push_back(operands_[i].ndim() == 0 && local.dim() > 0 ? at::sum(local, local.scalar_type()) : local);
    }
    call_on(operation_, call_, locals_);
    return {operands_[0]};
  }

  /// On a rank outside the mesh: what dtype the results have is found on tensors without storage. They are empty and
  /// need a gradient where those of the ranks inside do.
  std::vector<DTensor> run_outside() const {
    std::vector<at::Tensor> shells;
    at::Tensor root = at::zeros({}, at::kFloat);
    for (size_t i = 0; i < operands_.size(); ++i) {
      const at::Tensor& local = operands_[i].local();
      shells.push_back(at::empty(operands_[i].shape(), local.options().device(at::kMeta)));
      if (local.requires_grad()) root = root.add(at::sum(local).to(at::kFloat));
    }
    const std::vector<at::Tensor> outlines = tensors_of(call_on(operation_, call_, shells));
    std::vector<DTensor> results;
    for (size_t i = 0; i < outlines.size(); ++i) {
      const at::ScalarType dtype = outlines[i].scalar_type();
      at::Tensor local = is_differentiable(dtype) ? root.to(dtype).expand({0})
                                                  : at::empty({0}, outlines[i].options().device(at::kCPU));
      results.push_back(wrap(std::move(local), i));
      if (is_copied_view()) results.back().mark_copied_view();
    }
    return results;
  }

  const Operation& operation_;
  const BoundCall& call_;
  const RuledOperands operands_;
  const std::shared_ptr<const CallPlan> plan_;
  std::vector<at::Tensor> locals_;
};

}  // namespace

std::vector<DTensor> call_ruled(const Operation& operation, const BoundCall& call) {
  return RuledCall(operation, call).run();
}

void check_ruled(const Operation& operation, const BoundCall& call) { RuledCall(operation, call).check(); }

bool needs_rule(const BoundArguments& arguments, const DTensor& frame) {
  if (frame.layout().is_ragged()) return false;
  return std::ranges::any_of(arguments, [&](const BoundArgument& argument) {
    const DTensor* tensor = argument.value == nullptr ? nullptr : argument.value->dtensor();
    if (tensor == nullptr || tensor == &frame) return false;
    if (tensor->shape() == frame.shape()) return tensor->layout() != frame.layout();
    const bool whole = std::ranges::all_of(tensor->placements(), is_replicate);
    return !(whole && tensor->numel() == 1 && tensor->ndim() <= frame.ndim());
  });
}

}  // namespace hyper_parallel
