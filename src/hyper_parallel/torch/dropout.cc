#include "hyper_parallel/torch/dropout.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <string_view>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/mesh_check.h"
#include "hyper_parallel/torch/operation_table.h"
#include "hyper_parallel/torch/random_local.h"
#include "hyper_parallel/torch/random_state.h"

namespace hyper_parallel {
namespace {

void check_operand(std::string_view operation, const DTensor& x, double p) {
  HP_CHECK(p >= 0 && p <= 1, kInvalidArgument, operation, ": p is ", p, " but must be in [0, 1]");
  if (x.layout().is_ragged()) refuse_operation(operation, x);
  HP_CHECK(!x.layout().has_partial(), kInvalidArgument, "operation '", operation,
           "' does not commute with the pending reduction of argument 'input', whose placements are ",
           short_text(x.placements()), "; redistribute it to Replicate() first");
  check_random_dtype(operation, x.dtype());
}

/// What this rank's part is multiplied by; nothing where x stays as it is.
std::optional<at::Tensor> factor(std::string_view operation, const DTensor& x, double p, DropoutMode mode) {
  check_operand(operation, x, p);
  if (mode == DropoutMode::kEvaluation || p == 0 || x.numel() == 0) return std::nullopt;
  const at::TensorOptions options = x.local().options();
  if (p == 1 || !x.mesh().is_member()) return at::zeros({}, options);
  const RandomStream stream = draw(x.mesh(), x.local().device(), operation,
                                   [&] { return str_cat(describe(x.layout(), x.shape(), x.local()), ", p ", p); });
  return dropout_local(stream, local_part(x.layout(), x.shape(), x.mesh().rank()), 1 - p, options);
}

}  // namespace

DTensor dropout(const DTensor& x, double p, DropoutMode mode) {
  const std::optional<at::Tensor> by = factor("dropout", x, p, mode);
  return by ? DTensor::unchecked(at::mul(x.local(), *by), x.mesh(), x.layout(), x.shape()) : x;
}

void dropout_(DTensor& x, double p, DropoutMode mode) {
  const std::optional<at::Tensor> by = factor("dropout_", x, p, mode);
  if (!by) return;
  at::Tensor local = x.local();
  local.mul_(*by);
}

}  // namespace hyper_parallel
