#pragma once

// What torch's kernels refuse, they refuse where they find a cell: a dtype that has no kernel, a zero that divides
// integers. A rank whose part has none asks them with a cell of its own, so that all ranks raise.

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// Runs the operation on the local parts that `local_of(argument, tensor)` gives, in the order of `make_stack`; one
/// without cells of a tensor that has some is replaced by a part with one. Throws what torch throws: for an operation
/// on cells at the same place anything, else that there is no such kernel, since other arguments may not fit a single
/// cell. Writes to nothing that it is given.
void check_kernel(const Operation& operation, const BoundCall& call,
                  c10::function_ref<at::Tensor(const BoundArgument&, const Argument&)> local_of);

}  // namespace hyper_parallel
