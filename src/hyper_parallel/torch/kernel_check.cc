#include "hyper_parallel/torch/kernel_check.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "hyper_parallel/torch/operation_rules.h"
#include "hyper_parallel/torch/operation_stack.h"

namespace hyper_parallel {
namespace {

/// One along each dim that has cells elsewhere. Outside the mesh the local part has one dim, whatever the tensor has.
std::vector<int64_t> sizes_with_a_cell(const at::Tensor& local, const std::vector<int64_t>& shape) {
  std::vector<int64_t> sizes(shape.size());
  const bool has_own_sizes = local.dim() == static_cast<int64_t>(shape.size());
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    const int64_t own = has_own_sizes ? local.size(static_cast<int64_t>(dim)) : 0;
    sizes[dim] = own > 0 ? own : std::min<int64_t>(shape[dim], 1);
  }
  return sizes;
}

/// Ones divide; zeros are indices that fit any tensor.
at::Tensor with_a_cell(const at::Tensor& local, const Argument& tensor, double value) {
  if (local.numel() > 0) return local;
  if (tensor.dtensor() == nullptr) return *tensor.plain_tensor();
  return at::full(sizes_with_a_cell(local, tensor.dtensor()->shape()), value, local.options());
}

}  // namespace

void check_kernel(const Operation& operation, const BoundCall& call,
                  c10::function_ref<at::Tensor(const BoundArgument&, const Argument&)> local_of) {
  const bool same_place = is_elementwise(operation);
  const at::NoGradGuard constant;
  torch::jit::Stack stack =
      make_stack(operation, call.arguments, [&](const BoundArgument& argument, const Argument& tensor) {
        const at::Tensor local = with_a_cell(local_of(argument, tensor), tensor, same_place ? 1 : 0);
        return argument.parameter->written ? local.clone() : local;
      });
  try {
    call.overload->op.callBoxed(stack);
  } catch (const c10::NotImplementedError&) {
    throw;
  } catch (const c10::Error&) {
    if (same_place) throw;
  }
}

}  // namespace hyper_parallel
