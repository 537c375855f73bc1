#pragma once

// How a ruled operation is called on this rank's parts, so that these are parts of what the whole call gives: as the
// caller has called it, or as `LocalCall` says.

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <span>
#include <vector>

#include "hyper_parallel/operations/call_plan.h"
#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// A call whose operands lie as the operation needs them.
struct PreparedCall {
  const Operation& operation;
  const BoundCall& call;
  const CallPlan& plan;
  std::span<const Dims> shapes;  // of the operands
  const std::vector<at::Tensor>& locals;
  const MeshCommunicator& mesh;
};

/// The results, as the dispatcher gives them. Communicates one number where a mean loss over classes is cut.
torch::jit::Stack call_locally(const PreparedCall& prepared);

/// The operation itself, `locals` in place of its tensors; and its arguments before it is called.
torch::jit::Stack call_on(const Operation& operation, const BoundCall& call, const std::vector<at::Tensor>& locals);
torch::jit::Stack stack_on(const Operation& operation, const BoundCall& call, const std::vector<at::Tensor>& locals);

}  // namespace hyper_parallel
