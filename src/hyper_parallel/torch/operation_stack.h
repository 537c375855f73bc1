#pragma once

// How a bound call reaches torch's dispatcher: its arguments in the schema's order, local tensors in place of tensors.

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <string_view>

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// `local_of(argument, tensor)` is asked for each tensor among the arguments, lists looked into, in order: `tensor` is
/// the argument itself or an item of its list.
torch::jit::Stack make_stack(const Operation& operation, const BoundArguments& arguments,
                             c10::function_ref<at::Tensor(const BoundArgument&, const Argument&)> local_of);

}  // namespace hyper_parallel
