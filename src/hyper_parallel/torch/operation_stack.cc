#include "hyper_parallel/torch/operation_stack.h"

#include <ATen/core/List.h>

#include <utility>

namespace hyper_parallel {

torch::jit::Stack make_stack(const Operation& operation, const BoundArguments& arguments,
                             c10::function_ref<at::Tensor(const BoundArgument&, const Argument&)> local_of) {
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  for (const BoundArgument& argument : arguments) {
    if (argument.is_tensor()) {
      stack.emplace_back(local_of(argument, *argument.value));
    } else if (argument.parameter->kind == ParameterKind::kTensorList && argument.value != nullptr &&
               argument.value->items() != nullptr) {
      c10::List<at::Tensor> list;
      for (const Argument& item : *argument.value->items()) list.push_back(local_of(argument, item));
      stack.emplace_back(std::move(list));
    } else {
      stack.push_back(to_ivalue(operation, argument));
    }
  }
  return stack;
}

}  // namespace hyper_parallel
