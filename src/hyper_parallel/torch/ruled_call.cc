#include "hyper_parallel/torch/ruled_call.h"

#include <ATen/core/List.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nll_loss_nd.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/geometry/distribution.h"
#include "hyper_parallel/operations/pointwise_rule.h"
#include "hyper_parallel/operations/propagate.h"
#include "hyper_parallel/torch/operation_rules.h"
#include "hyper_parallel/torch/redistribute_local.h"

namespace hyper_parallel {
namespace {

using torch::jit::Stack;

std::string place(const Operation& operation, std::string_view argument) {
  return str_cat("operation '", operation.name, "': argument '", argument, "'");
}

bool is_tensor(const Argument& argument) { return argument.dtensor() != nullptr || argument.plain_tensor() != nullptr; }

/// Calls `visit(name, argument)` for each tensor among the arguments, lists looked into.
template <typename Visit>
void for_each_tensor(const BoundArguments& arguments, const Visit& visit) {
  for (const BoundArgument& bound : arguments) {
    if (bound.value == nullptr) continue;
    if (is_tensor(*bound.value)) visit(bound.parameter->name, *bound.value);
    if (bound.value->items() == nullptr) continue;
    for (const Argument& item : *bound.value->items()) {
      if (is_tensor(item)) visit(bound.parameter->name, item);
    }
  }
}

struct TensorOperand {
  std::string_view name;
  DTensor tensor;
};

const DTensor& first_dtensor(const Operation& operation, const BoundArguments& arguments) {
  const DTensor* first = nullptr;
  for_each_tensor(arguments, [&](std::string_view name, const Argument& argument) {
    const DTensor* tensor = argument.dtensor();
    if (tensor == nullptr) return;
    if (tensor->layout().is_ragged()) refuse_operation(operation.name, *tensor);
    HP_CHECK(first == nullptr || tensor->mesh().rank() == first->mesh().rank(), kFailedPrecondition,
             place(operation, name), " is the part of rank ", tensor->mesh().rank(),
             " but another operand that of rank ", first->mesh().rank());
    if (first == nullptr) first = tensor;
  });
  HP_CHECK(first != nullptr, kType, "operation '", operation.name, "' was given no DTensor");
  return *first;
}

/// A plain tensor of one element, which every rank holds.
DTensor replicated(const Operation& operation, std::string_view name, const Argument& argument, const DTensor& beside) {
  const at::Tensor& tensor = *argument.plain_tensor();
  HP_CHECK(tensor.defined(), kType, place(operation, name), " is an undefined tensor");
  HP_CHECK(tensor.numel() == 1, kType, place(operation, name), " is ", argument.describe(),
           ", but beside a DTensor a plain tensor must have one element; distribute it");
  std::vector<Placement> placements(beside.placements().size(), Replicate{});
  return DTensor::unchecked(tensor, beside.mesh(), beside.layout().with_placements(std::move(placements)),
                            tensor.sizes().vec());
}

/// One call, from arguments to results.
class RuledCall {
 public:
  RuledCall(const Operation& operation, const BoundCall& call)
      : operation_(operation), call_(call), first_(first_dtensor(operation, call.arguments)) {
    for_each_tensor(call.arguments, [&](std::string_view name, const Argument& argument) {
      operands_.push_back(
          {name, argument.dtensor() != nullptr ? *argument.dtensor() : replicated(operation, name, argument, first_)});
      shapes_.emplace_back(operands_.back().tensor.shape());
    });
  }

  std::vector<DTensor> run() {
    rule_ = make_rule();
    propagation_ =
        propagate(operation_.name, rule_, given(), operation_.writes ? std::optional<size_t>(0) : std::nullopt);
    check_dtype();
    if (!first_.mesh().is_member()) return operation_.writes ? write_outside() : run_outside();
    prepare();
    for (size_t i = 0; i < rule_.results.size(); ++i) {
      distributions_.emplace_back(propagation_.results[i], rule_.results[i].shape);
    }
    return results(call_locally());
  }

 private:
  Rule make_rule() const {
    const RuleArguments arguments(call_.arguments, shapes_);
    return operation_.rule == nullptr ? elementwise_rule(arguments) : operation_.rule(arguments);
  }

  /// What only some ranks would find: those whose part has no cells.
  void check_dtype() const {
    if (operation_.local == LocalCall::kExtreme && is_cut()) neutral(operands_.front().tensor.dtype());
  }

  std::vector<GivenOperand> given() const {
    std::vector<GivenOperand> given;
    for (const TensorOperand& operand : operands_) {
      given.push_back(
          {operand.name, operand.tensor.layout(), static_cast<int64_t>(c10::elementSize(operand.tensor.dtype()))});
    }
    return given;
  }

  /// Lays the local tensors out as the operation needs them; the collectives of the forward pass are here.
  void prepare() {
    coordinate_ = *first_.layout().mesh().coordinate(first_.mesh().rank());
    for (size_t i = 0; i < operands_.size(); ++i) {
      const DTensor& tensor = operands_[i].tensor;
      const PreparedOperand& prepared = propagation_.operands[i];
      at::Tensor local = redistribute_local(
          tensor.local(), {tensor.layout(), prepared.layout, prepared.gradient, shapes_[i]}, first_.mesh());
      const bool adds = std::ranges::all_of(prepared.added_once,
                                            [&](int64_t dim) { return coordinate_[static_cast<size_t>(dim)] == 0; });
      // A product with zero would keep NaN, and a constant would have no place in the graph.
      if (!adds) local = at::where(at::zeros({}, local.options().dtype(at::kBool)), local, at::zeros_like(local));
      locals_.push_back(std::move(local));
    }
  }

  /// The arguments with local tensors in place of the tensors.
  Stack stack_of(c10::ArrayRef<at::Tensor> tensors) const {
    Stack stack;
    size_t next = 0;
    for (const BoundArgument& argument : call_.arguments) {
      const Argument* value = argument.value;
      if (value != nullptr && is_tensor(*value)) {
        stack.emplace_back(tensors[next++]);
      } else if (argument.parameter->kind == ParameterKind::kTensorList && value != nullptr) {
        c10::List<at::Tensor> list;
        for (size_t i = 0; i < value->items()->size(); ++i) list.push_back(tensors[next++]);
        stack.emplace_back(std::move(list));
      } else {
        stack.push_back(to_ivalue(operation_, argument));
      }
    }
    return stack;
  }

  Stack call_locally() const {
    switch (operation_.local) {
      case LocalCall::kAsCalled:
        break;
      case LocalCall::kResultSizes:
        return call_with_sizes();
      case LocalCall::kView:
        check_viewable_strides();
        return {locals_.front().view(result_sizes())};
      case LocalCall::kReshape:
        return {locals_.front().reshape(result_sizes())};
      case LocalCall::kMean:
        if (is_cut()) return {mean_of_parts()};
        break;
      case LocalCall::kExtreme:
        if (is_cut() && has_no_cells()) return {neutral_result()};
        break;
      case LocalCall::kMeanLoss:
        if (is_cut() && takes_mean()) return {mean_of_losses(at::full({}, reduced_cells(), at::kDouble))};
        break;
      case LocalCall::kClassLoss:
        if (is_cut() && takes_mean()) return {mean_of_losses(weight_of_targets())};
        break;
    }
    Stack stack = stack_of(locals_);
    call_.overload->op.callBoxed(stack);
    return stack;
  }

  std::vector<int64_t> result_sizes() const { return distributions_.front().local_shape(coordinate_).to_vector(); }

  /// torch refuses a view that the strides do not allow only where there are cells: a part without any is taken for one
  /// with a row, so that all ranks raise.
  void check_viewable_strides() const {
    const at::Tensor& local = locals_.front();
    if (local.numel() > 0 || std::ranges::find(shapes_.front(), 0) != shapes_.front().end()) return;
    const auto with_a_row = [](std::vector<int64_t> sizes) {
      std::ranges::replace(sizes, 0, 1);
      return sizes;
    };
    at::empty_strided(with_a_row(local.sizes().vec()), local.strides(), local.options().device(at::kMeta))
        .view(with_a_row(result_sizes()));
  }

  Stack call_with_sizes() const {
    Stack stack = stack_of(locals_);
    for (size_t i = 0; i < call_.arguments.size(); ++i) {
      if (call_.arguments[i].parameter->kind == ParameterKind::kIntegerList) stack[i] = c10::IValue(result_sizes());
    }
    call_.overload->op.callBoxed(stack);
    return stack;
  }

  /// Whether a reduced axis is cut, so that the results are shares where the operands are not.
  bool is_cut() const {
    const std::vector<Placement>& operand = propagation_.operands.front().layout.placements();
    const std::vector<Placement>& result = propagation_.results.front().placements();
    for (size_t dim = 0; dim < result.size(); ++dim) {
      if (is_partial(result[dim]) && !is_partial(operand[dim])) return true;
    }
    return false;
  }

  std::vector<int64_t> reduced_dims() const {
    std::vector<int64_t> dims;
    const std::vector<int>& axes = rule_.operands.front().axes;
    for (size_t dim = 0; dim < axes.size(); ++dim) {
      const bool reduced =
          axes[dim] != kNoAxis && rule_.axes[static_cast<size_t>(axes[dim])].use == Axis::Use::kReduced;
      if (reduced) dims.push_back(static_cast<int64_t>(dim));
    }
    return dims;
  }

  bool keeps_dims() const { return rule_.results.front().shape.size() == rule_.operands.front().shape.size(); }

  /// The dtype of a sum that becomes a mean: it may leave the range of a half where the mean does not.
  static at::ScalarType sum_dtype(at::ScalarType dtype) {
    return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
  }

  at::Tensor mean_of_parts() const {
    const at::Tensor& local = locals_.front();
    const Argument* dtype = find_argument(call_.arguments, "dtype");
    const auto wanted = dtype != nullptr && dtype->dtype() != nullptr ? *dtype->dtype() : local.scalar_type();
    HP_CHECK(c10::isFloatingType(wanted) || c10::isComplexType(wanted), kInvalidArgument,
             "operation 'mean' takes a floating or complex dtype, not ", c10::toString(wanted));
    return at::sum(local, reduced_dims(), keeps_dims(), sum_dtype(wanted)).div(reduced_cells()).to(wanted);
  }

  /// How many cells of all ranks become one.
  int64_t reduced_cells() const {
    int64_t cells = 1;
    for (const Axis& axis : rule_.axes) {
      if (axis.use == Axis::Use::kReduced) cells = checked_mul(cells, axis.cells);
    }
    return cells;
  }

  bool takes_mean() const {
    const RuleArguments arguments(call_.arguments, shapes_);
    return arguments.integer("reduction") == static_cast<int64_t>(at::Reduction::Mean);
  }

  /// This rank's share of the mean of all losses, which together have `weight`.
  at::Tensor mean_of_losses(const at::Tensor& weight) const {
    std::vector<at::Tensor> wide;
    at::ScalarType dtype = locals_.front().scalar_type();
    for (const at::Tensor& local : locals_) {
      const bool is_floating = c10::isFloatingType(local.scalar_type());
      if (is_floating) dtype = c10::promoteTypes(dtype, local.scalar_type());
      wide.push_back(is_floating ? local.to(sum_dtype(local.scalar_type())) : local);
    }
    Stack stack = stack_of(wide);
    for (size_t i = 0; i < call_.arguments.size(); ++i) {
      if (call_.arguments[i].parameter->name == "reduction") stack[i] = static_cast<int64_t>(at::Reduction::Sum);
    }
    call_.overload->op.callBoxed(stack);
    return std::move(stack.front()).toTensor().div(weight).to(dtype);
  }

  /// What torch divides the mean of a loss over classes by: the weights of the targets that are not ignored, or, of
  /// probabilities, the number of samples. Each rank knows its own targets alone, so this communicates one number.
  at::Tensor weight_of_targets() const {
    const at::NoGradGuard constant;
    const at::Tensor& target = locals_[1];
    if (shapes_[0] == shapes_[1]) return at::full({}, reduced_cells(), at::kDouble);
    const at::ScalarType dtype = sum_dtype(locals_[0].scalar_type());
    // The loss of scores of -1 is the weight of its target.
    const at::Tensor scores = at::full({}, -1, locals_[0].options().dtype(dtype)).expand(locals_[0].sizes());
    const at::Tensor own =
        at::nll_loss_nd(scores, target, locals_.size() == 3 ? std::optional(locals_[2].to(dtype)) : std::nullopt,
                        at::Reduction::Sum, RuleArguments(call_.arguments, shapes_).integer("ignore_index"));
    const Layout& shares = propagation_.results.front();
    const Layout whole = gradient_layout(shares);
    return redistribute_local(own, {shares, whole, whole, Dims{}}, first_.mesh());
  }

  /// Whether this rank has nothing along a reduced dim.
  bool has_no_cells() const {
    return std::ranges::any_of(reduced_dims(), [&](int64_t dim) { return locals_.front().size(dim) == 0; });
  }

  /// Of a part without cells the value that any other one replaces.
  at::Tensor neutral_result() const {
    const at::Tensor& local = locals_.front();
    const at::Tensor nothing =
        at::sum(local, reduced_dims(), keeps_dims(), local.scalar_type());  // zeros, in the graph
    return nothing.add(at::full({}, neutral(local.scalar_type()), nothing.options()));
  }

  at::Scalar neutral(at::ScalarType dtype) const {
    const bool is_max = rule_.reduction == ReduceOp::kMax;
    if (c10::isFloatingType(dtype)) {
      const double infinity = std::numeric_limits<double>::infinity();
      return is_max ? -infinity : infinity;
    }
    HP_CHECK(c10::isIntegralType(dtype, /*includeBool=*/false), kUnimplemented, "operation '", operation_.name,
             "' of a cut dim takes a floating or integer dtype, not ", c10::toString(dtype));
    return is_max ? lowest(dtype) : highest(dtype);
  }

  static at::Scalar highest(at::ScalarType dtype) {
    if (dtype == at::kByte) return int64_t{255};
    return static_cast<int64_t>((uint64_t{1} << (8 * c10::elementSize(dtype) - 1)) - 1);
  }
  static at::Scalar lowest(at::ScalarType dtype) {
    if (dtype == at::kByte) return int64_t{0};
    return -highest(dtype).toLong() - 1;
  }

  std::vector<DTensor> results(Stack stack) const {
    if (operation_.writes) return {operands_.front().tensor};
    std::vector<at::Tensor> locals = tensors_of(std::move(stack));
    HP_DCHECK(locals.size() == rule_.results.size());
    std::vector<DTensor> results;
    for (size_t i = 0; i < locals.size(); ++i) {
      const Dims expected = distributions_[i].local_shape(coordinate_);
      HP_CHECK(std::ranges::equal(locals[i].sizes(), expected), kInternal, "internal error: operation '",
               operation_.name, "' gave a local result of shape ", tuple_text(locals[i].sizes()), " where the rule ",
               to_string(rule_), " has ", tuple_text(expected));
      results.push_back(wrap(with_all_operands(std::move(locals[i])), i));
      if (is_copied_view()) results.back().mark_copied_view();
    }
    return results;
  }

  /// A view must show its operand's storage; a reshape may not.
  bool is_copied_view() const {
    if (!operation_.is_view || operation_.local == LocalCall::kReshape) return false;
    const DTensor& viewed = operands_.front().tensor;
    return viewed.is_copied_view() || viewed.layout() != propagation_.operands.front().layout;
  }

  /// Where there are no cells, attention leaves its mask out of the graph: this rank would not come to the collective
  /// of the mask's gradient.
  at::Tensor with_all_operands(at::Tensor local) const {
    const bool differentiable = c10::isFloatingType(local.scalar_type()) || c10::isComplexType(local.scalar_type());
    if (local.numel() > 0 || operation_.is_view || !differentiable) return local;
    for (const at::Tensor& operand : locals_) {
      if (operand.requires_grad()) local = local.add(at::sum(operand).to(local.scalar_type()));
    }
    return local;
  }

  DTensor wrap(at::Tensor local, size_t index) const {
    return DTensor::unchecked(std::move(local), first_.mesh(), propagation_.results[index],
                              rule_.results[index].shape.to_vector());
  }

  static std::vector<at::Tensor> tensors_of(Stack stack) {
    if (stack.size() == 1 && stack.front().isTensorList()) return stack.front().toTensorVector();
    std::vector<at::Tensor> tensors;
    for (c10::IValue& value : stack) tensors.push_back(std::move(value).toTensor());
    return tensors;
  }

  /// On a rank outside the mesh: the empty tensors get the version and the place in the graph of those inside.
  std::vector<DTensor> write_outside() {
    for (const TensorOperand& operand : operands_) {
      const at::Tensor& local = operand.tensor.local();
      locals_.push_back(operand.tensor.ndim() == 0 && local.dim() > 0 ? at::sum(local, local.scalar_type()) : local);
    }
    Stack stack = stack_of(locals_);
    call_.overload->op.callBoxed(stack);
    return {operands_.front().tensor};
  }

  /// On a rank outside the mesh: what dtype the results have is found on tensors without storage. They are empty and
  /// need a gradient where those of the ranks inside do.
  std::vector<DTensor> run_outside() const {
    std::vector<at::Tensor> shells;
    at::Tensor root = at::zeros({}, at::kFloat);
    for (size_t i = 0; i < operands_.size(); ++i) {
      const at::Tensor& local = operands_[i].tensor.local();
      shells.push_back(at::empty(shapes_[i].to_vector(), local.options().device(at::kMeta)));
      if (local.requires_grad()) root = root.add(at::sum(local).to(at::kFloat));
    }
    Stack stack = stack_of(shells);
    call_.overload->op.callBoxed(stack);
    const std::vector<at::Tensor> outlines = tensors_of(std::move(stack));
    std::vector<DTensor> results;
    for (size_t i = 0; i < outlines.size(); ++i) {
      const at::ScalarType dtype = outlines[i].scalar_type();
      const bool differentiable = c10::isFloatingType(dtype) || c10::isComplexType(dtype);
      results.push_back(wrap(
          differentiable ? root.to(dtype).expand({0}) : at::empty({0}, outlines[i].options().device(at::kCPU)), i));
    }
    return results;
  }

  const Operation& operation_;
  const BoundCall& call_;
  const DTensor& first_;
  std::vector<TensorOperand> operands_;
  std::vector<Dims> shapes_;
  Rule rule_;
  Propagation propagation_;
  Dims coordinate_;
  std::vector<at::Tensor> locals_;
  std::vector<Distribution> distributions_;
};

}  // namespace

std::vector<DTensor> call_ruled(const Operation& operation, const BoundCall& call) {
  return RuledCall(operation, call).run();
}

bool needs_rule(const BoundArguments& arguments, const DTensor& frame) {
  if (frame.layout().is_ragged()) return false;
  return std::ranges::any_of(arguments, [&](const BoundArgument& argument) {
    const DTensor* tensor = argument.value == nullptr ? nullptr : argument.value->dtensor();
    if (tensor == nullptr || tensor == &frame) return false;
    if (tensor->shape() == frame.shape() && tensor->layout() == frame.layout()) return false;
    const bool whole = std::ranges::all_of(tensor->placements(), is_replicate);
    return !(whole && tensor->numel() == 1 && tensor->ndim() <= frame.ndim());
  });
}

}  // namespace hyper_parallel
