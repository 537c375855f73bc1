#include "hyper_parallel/torch/operation_call.h"

#include <ATen/core/List.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/elementwise_operands.h"
#include "hyper_parallel/torch/elementwise_partial.h"
#include "hyper_parallel/torch/kernel_check.h"
#include "hyper_parallel/torch/operand_checks.h"
#include "hyper_parallel/torch/operation_binding.h"
#include "hyper_parallel/torch/operation_stack.h"
#include "hyper_parallel/torch/ruled_call.h"
#include "hyper_parallel/torch/scalar_dtype.h"

namespace hyper_parallel {
namespace {

using torch::jit::Stack;

DTensor wrap(at::Tensor local, const DTensor& frame) {
  HP_CHECK(local.sizes() == frame.local().sizes(), kFailedPrecondition, "an elementwise result has local shape ",
           tuple_text(local.sizes()), " but its operand ", tuple_text(frame.local().sizes()),
           ": the size of a local tensor was changed from outside");
  return DTensor::unchecked(std::move(local), frame.mesh(), frame.layout(), frame.shape());
}

/// The global rules of operands that need no more than to lie as `frame`.
void check_frame(const Operation& operation, const BoundArguments& arguments, const DTensor& frame) {
  check_commutes(operation, arguments);
  if (operation.writes) check_reaches_base(operation, frame);
}

/// The frame after all global rules were checked.
const DTensor& checked_frame(const Operation& operation, const BoundArguments& arguments) {
  const DTensor& frame = frame_of(operation, arguments);
  check_frame(operation, arguments, frame);
  return frame;
}

/// Outside the mesh operands of no dims are elements, but a result has none.
at::Tensor in_own_sizes(at::Tensor local, const DTensor& frame) {
  return frame.ndim() == 0 && !frame.mesh().is_member() ? local.expand({0}) : std::move(local);
}

std::vector<DTensor> call_one(const Operation& operation, const BoundCall& call) {
  if (operation.composite != nullptr) return operation.composite(operation, call);
  if (operation.rule != nullptr) return call_ruled(operation, call);
  const DTensor& frame = checked_frame(operation, call.arguments);
  if (needs_rule(call.arguments, frame)) return call_ruled(operation, call);
  const auto local_of = [&](const BoundArgument& argument, const Argument&) {
    return aligned_local(operation, argument, frame);
  };
  Stack stack = make_stack(operation, call.arguments, local_of);
  if (frame.local().numel() == 0 && frame.numel() > 0) check_kernel(operation, call, local_of);
  call.overload->op.callBoxed(stack);
  if (operation.writes) return {frame};
  DTensor result = wrap(in_own_sizes(std::move(stack.front()).toTensor(), frame), frame);
  // What commutes with a max moves its shares: they stand for as many cells as before.
  const at::Tensor ties = frame.ties();
  if (ties.defined() && result.requires_grad()) result.set_ties(ties.to(wide_dtype(result.dtype())));
  return {std::move(result)};
}

/// A tensor that a form on lists takes beside them: one element for all list elements, or, as `scalars`, a number for
/// each. Its gradient would be a sum over tensors of unlike layouts.
at::Tensor shared_tensor(const Operation& operation, const BoundArgument& argument) {
  const DTensor* replicated = argument.value->dtensor();
  const bool whole = replicated != nullptr && std::ranges::all_of(replicated->placements(), is_replicate);
  const at::Tensor* tensor = whole ? &replicated->local() : argument.value->plain_tensor();
  const bool fits = tensor != nullptr && (tensor->numel() == 1 || argument.parameter->name == "scalars");
  const bool outside = whole && replicated->numel() == 1 && !replicated->mesh().is_member();
  HP_CHECK(fits || outside, kType, place(operation, argument.parameter->name), " is ", argument.value->describe(),
           " but must be a plain tensor of one element");
  HP_CHECK(!tensor->requires_grad(), kUnimplemented, place(operation, argument.parameter->name),
           " requires grad, which one tensor for a whole list may not");
  return outside ? element_of(*replicated) : *tensor;
}

constexpr std::string_view kForeach = "_foreach_";

/// Whether a call on lists may be taken apart: every tensor argument has an element of its own.
bool has_single_calls(const Operation& operation, const BoundCall& call) {
  return operation.name.starts_with(kForeach) &&
         std::ranges::none_of(call.arguments, [](const BoundArgument& argument) {
           return argument.parameter->kind == ParameterKind::kTensor;
         });
}

/// The arguments of one element's call, in the order of the single operation.
struct SingleArguments {
  std::vector<Argument> positional;
  std::vector<Keyword> keywords;
};

SingleArguments single_arguments(const BoundCall& bound, size_t index) {
  SingleArguments single;
  for (const BoundArgument& argument : element_arguments(bound, index)) {
    if (argument.value == nullptr) continue;
    const std::string_view parameter = argument.parameter->name;
    const bool is_value = parameter == "value" || parameter == "scalars";  // of addcmul and addcdiv
    if (parameter == "alpha" || is_value) {
      single.keywords.push_back({is_value ? "value" : parameter, *argument.value});
    } else {
      single.positional.push_back(*argument.value);
    }
  }
  return single;
}

void check_one(const Operation& operation, const BoundCall& call) {
  const DTensor& frame = checked_frame(operation, call.arguments);
  if (needs_rule(call.arguments, frame)) return check_ruled(operation, call);
  for (const BoundArgument& argument : call.arguments) {
    if (argument.is_tensor()) aligned_local(operation, argument, frame);
  }
}

/// That the result of an out-of-place operation can be copied to `written`.
void check_copies(const Operation& operation, const DTensor& written, const at::Tensor& result) {
  HP_CHECK(c10::canCast(result.scalar_type(), written.dtype()), kType, "operation '", operation.name,
           "': the result type ", c10::toString(result.scalar_type()), " can't be cast to ",
           c10::toString(written.dtype()));
  HP_CHECK(result.sizes() == at::IntArrayRef(written.shape()), kInvalidArgument, "operation '", operation.name,
           "': the result has shape ", tuple_text(result.sizes()), " but what it is written to has ",
           tuple_text(written.shape()));
}

/// The in-place form of an operation of two operands that has none.
DTensor call_and_copy(const Operation& single, const std::vector<Argument>& operands) {
  // On a copy: what the operation keeps for its gradient must not be written.
  const DTensor kept = call("clone", {operands[0]}).front();
  const DTensor result = call(single, {kept, operands[1]}, {}).front();
  return call("copy_", {operands[0], result}).front();
}

/// The call of a form on lists as calls of the single operation, which lays operands out that lie unlike. All are
/// checked before the first one writes.
std::vector<DTensor> call_singly(const Operation& operation, const BoundCall& bound, size_t length) {
  std::string_view name = std::string_view(operation.name).substr(kForeach.size());
  // torch has maximum_ and minimum_ on lists alone: the result is copied there.
  const bool copies = operation.writes && find_operation(name) == nullptr;
  if (copies) name.remove_suffix(1);
  const Operation& single = *find_operation(name);
  std::vector<SingleArguments> arguments;
  std::vector<BoundCall> calls;
  arguments.reserve(length);
  for (size_t i = 0; i < length; ++i) {
    arguments.push_back(single_arguments(bound, i));
    calls.push_back(bind_arguments(single, arguments.back().positional, arguments.back().keywords));
    check_one(single, calls.back());
    if (!operation.writes) continue;
    const DTensor& written = *arguments.back().positional.front().dtensor();
    check_no_leaf(operation, written);
    const at::Tensor outline = outline_of(single, calls.back());
    if (copies) check_copies(operation, written, outline);
  }
  std::vector<DTensor> results;
  for (size_t i = 0; i < length; ++i) {
    results.push_back(copies ? call_and_copy(single, arguments[i].positional) : call_one(single, calls[i]).front());
  }
  return results;
}

/// The arguments of a call on lists, transposed: first every element with its frame and local tensors.
std::vector<DTensor> call_list(const Operation& operation, const BoundCall& call) {
  const size_t length = list_length(operation, call);
  const bool may_be_single = has_single_calls(operation, call);
  std::vector<const DTensor*> frames;  // among the arguments
  std::vector<c10::List<at::Tensor>> locals(call.arguments.size());
  frames.reserve(length);
  for (size_t i = 0; i < length; ++i) {
    const BoundArguments element = element_arguments(call, i);
    const DTensor& frame = frame_of(operation, element);
    if (may_be_single && needs_rule(element, frame)) return call_singly(operation, call, length);
    check_frame(operation, element, frame);
    for (size_t p = 0; p < element.size(); ++p) {
      if (element[p].parameter->kind == ParameterKind::kTensorList) {
        locals[p].push_back(aligned_local(operation, element[p], frame));
      }
    }
    frames.push_back(&frame);
  }
  Stack stack;
  for (size_t p = 0; p < locals.size(); ++p) {
    const BoundArgument& argument = call.arguments[p];
    if (argument.parameter->kind == ParameterKind::kTensorList) {
      stack.emplace_back(std::move(locals[p]));
    } else {
      stack.push_back(argument.is_tensor() ? c10::IValue(shared_tensor(operation, argument))
                                           : to_ivalue(operation, argument));
    }
  }
  if (length == 0) return {};
  call.overload->op.callBoxed(stack);
  std::vector<DTensor> results;
  results.reserve(length);
  if (operation.writes) {
    for (const DTensor* frame : frames) results.push_back(*frame);
    return results;
  }
  const std::vector<at::Tensor> tensors = stack.front().toTensorVector();
  for (size_t i = 0; i < length; ++i) results.push_back(wrap(in_own_sizes(tensors[i], *frames[i]), *frames[i]));
  return results;
}

/// The first ragged DTensor among the arguments, else the first, else null; lists are looked into.
const DTensor* any_dtensor(c10::ArrayRef<Argument> arguments) {
  const DTensor* found = nullptr;
  const auto consider = [&found](const DTensor* tensor) {
    if (tensor == nullptr) return;
    if (found == nullptr || (tensor->layout().is_ragged() && !found->layout().is_ragged())) found = tensor;
  };
  for (const Argument& argument : arguments) {
    consider(argument.dtensor());
    if (argument.items() != nullptr) consider(any_dtensor(*argument.items()));
  }
  return found;
}

/// The same with those that have a name.
const DTensor* any_dtensor(c10::ArrayRef<Argument> arguments, c10::ArrayRef<Keyword> keywords) {
  const DTensor* found = any_dtensor(arguments);
  for (const Keyword& keyword : keywords) {
    const DTensor* named = any_dtensor(keyword.value);
    if (named == nullptr) continue;
    if (found == nullptr || (named->layout().is_ragged() && !found->layout().is_ragged())) found = named;
  }
  return found;
}

/// What works on normal layouts alone says so, whatever else is wrong with the call.
void refuse_ragged(const Operation& operation, c10::ArrayRef<Argument> arguments, c10::ArrayRef<Keyword> keywords) {
  const DTensor* tensor = any_dtensor(arguments, keywords);
  if (tensor != nullptr && tensor->layout().is_ragged()) refuse_operation(operation.name, *tensor);
}

/// A reversed form: `arguments` and the operands of its ATen operation stand in opposite order.
std::vector<DTensor> call_reversed(const Operation& operation, c10::ArrayRef<Argument> arguments,
                                   c10::ArrayRef<Keyword> keywords) {
  refuse_out(operation, keywords);
  HP_CHECK(arguments.size() == 2 && keywords.empty(), kType, "operation '", operation.name,
           "' takes 2 positional arguments and no keyword; ", arguments.size(), " and ", keywords.size(),
           " were given");
  const std::vector<Argument> operands{arguments[1], arguments[0]};
  if (operation.form == Form::kExchanged || operands[0].number() == nullptr) {
    const BoundCall bound = bind_arguments(operation, operands, {});
    DTensor result = call_one(operation, bound).front();
    if (needs_rule(bound.arguments, frame_of(operation, bound.arguments))) return {std::move(result)};
    // Laid out as the first operand in the caller's order; both own the same cells.
    return {wrap(result.local(), frame_of(operation, {bound.arguments[1], bound.arguments[0]}))};
  }
  const Parameter& divisor = operation.overloads.front().parameters[1];
  check_commutes(operation, {{&divisor, &operands[1]}});
  const std::vector<DTensor> reciprocal = call("reciprocal", {operands[1]});
  return call("mul", {reciprocal.front(), operands[0]});
}

}  // namespace

std::vector<DTensor> call(const Operation& operation, c10::ArrayRef<Argument> arguments,
                          c10::ArrayRef<Keyword> keywords) {
  if (!operation.takes_ragged) refuse_ragged(operation, arguments, keywords);
  if (operation.form != Form::kAsNamed) return call_reversed(operation, arguments, keywords);
  const BoundCall bound = bind_arguments(operation, arguments, keywords);
  return operation.is_list ? call_list(operation, bound) : call_one(operation, bound);
}

std::vector<DTensor> call(std::string_view name, c10::ArrayRef<Argument> arguments, c10::ArrayRef<Keyword> keywords) {
  if (const Operation* operation = find_operation(name)) return call(*operation, arguments, keywords);
  const DTensor* operand = any_dtensor(arguments, keywords);
  HP_CHECK(operand != nullptr, kType, "operation '", name, "' was given no DTensor");
  refuse_operation(name, *operand);
}

}  // namespace hyper_parallel
