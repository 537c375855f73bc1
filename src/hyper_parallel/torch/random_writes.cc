#include "hyper_parallel/torch/random_writes.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <limits>
#include <string>
#include <string_view>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/mesh_check.h"
#include "hyper_parallel/torch/operand_checks.h"
#include "hyper_parallel/torch/operation_rules.h"
#include "hyper_parallel/torch/random_local.h"
#include "hyper_parallel/torch/random_state.h"
#include "hyper_parallel/torch/scalar_dtype.h"

namespace hyper_parallel {
namespace {

const DTensor& written_operand(const Operation& operation, const BoundCall& call) {
  const DTensor* x = call.arguments.front().value->dtensor();
  HP_CHECK(x != nullptr, kType, "operation '", operation.name, "' was given no DTensor");
  HP_CHECK(!x->layout().has_partial(), kInvalidArgument, "operation '", operation.name,
           "' of a tensor with placements ", short_text(x->placements()),
           ": numbers drawn for shares of a pending reduction would be combined; redistribute it to Replicate() first");
  check_random_dtype(operation.name, x->dtype());
  check_reaches_base(operation, *x);
  check_no_leaf(operation, *x);
  return *x;
}

/// Writes what `make(stream, part, options)` makes of this rank's part, in place and seen by the graph. `numbers` is
/// what ranks must give alike beside the tensor.
template <typename Make>
std::vector<DTensor> write(const Operation& operation, const DTensor& x, std::string_view numbers, const Make& make) {
  const at::Tensor& local = x.local();
  at::Tensor values = at::empty_like(local);  // outside the mesh: no elements
  if (x.mesh().is_member()) {
    const auto description = [&] { return str_cat(describe(x.layout(), x.shape(), local), ", ", numbers); };
    const RandomStream stream = draw(x.mesh(), local.device(), operation.name, description);
    const at::TensorOptions options = at::TensorOptions().dtype(local.dtype()).device(local.device());
    values = make(stream, local_part(x.layout(), x.shape(), x.mesh().rank()), options);
  }
  local.copy_(values);
  return {x};
}

double greatest_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return std::numeric_limits<at::Half>::max();
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::max();
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

}  // namespace

std::vector<DTensor> uniform_in_place(const Operation& operation, const BoundCall& call) {
  const DTensor& x = written_operand(operation, call);
  const RuleArguments arguments(call.arguments, {});
  const double from = arguments.number("from");
  const double to = arguments.number("to");
  const double greatest = greatest_of(x.dtype());
  HP_CHECK(from <= to && from >= -greatest && to <= greatest && to - from <= greatest, kInvalidArgument, "operation '",
           operation.name, "': from is ", from, " and to is ", to,
           ", but from must not be greater, and neither they nor their distance beyond the greatest ",
           c10::toString(x.dtype()), ", ", greatest);
  const std::string numbers = str_cat("from ", from, " to ", to);
  return write(operation, x, numbers, [&](const RandomStream& stream, const LocalPart& part, const auto& options) {
    const at::Tensor unit = uniform_local(stream, part, options);
    const at::Tensor scaled = unit.to(wide_dtype(unit.scalar_type())).mul(to - from).add(from).to(unit.scalar_type());
    return at::where(scaled.ge(to), at::full_like(scaled, from), scaled);  // what rounding has taken to the open end
  });
}

std::vector<DTensor> normal_in_place(const Operation& operation, const BoundCall& call) {
  const DTensor& x = written_operand(operation, call);
  const RuleArguments arguments(call.arguments, {});
  const double mean = arguments.number("mean");
  const double std = arguments.number("std");
  HP_CHECK(std >= 0, kInvalidArgument, "operation '", operation.name, "': std is ", std, " but must not be negative");
  const std::string numbers = str_cat("mean ", mean, " std ", std);
  return write(operation, x, numbers, [&](const RandomStream& stream, const LocalPart& part, const auto& options) {
    return normal_local(stream, part, options.dtype(wide_dtype(x.dtype()))).mul(std).add(mean);
  });
}

}  // namespace hyper_parallel
