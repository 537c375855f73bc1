#include "hyper_parallel/torch/ruled_operands.h"

#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/operand_checks.h"

namespace hyper_parallel {
namespace {

/// Calls `visit(name, argument)` for each tensor among the arguments, lists looked into.
template <typename Visit>
void for_each_tensor(const BoundArguments& arguments, const Visit& visit) {
  for (const BoundArgument& bound : arguments) {
    if (bound.value == nullptr) continue;
    if (bound.is_tensor()) visit(bound.parameter->name, *bound.value);
    if (bound.value->items() == nullptr) continue;
    for (const Argument& item : *bound.value->items()) {
      if (item.is_tensor()) visit(bound.parameter->name, item);
    }
  }
}

const DTensor& first_dtensor(const Operation& operation, const BoundArguments& arguments) {
  const DTensor* first = nullptr;
  for_each_tensor(arguments, [&](std::string_view name, const Argument& argument) {
    const DTensor* tensor = argument.dtensor();
    if (tensor == nullptr) return;
    if (tensor->layout().is_ragged()) refuse_operation(operation.name, *tensor);
    if (first == nullptr) first = tensor;
    check_same_rank(operation, name, *tensor, *first);
  });
  HP_CHECK(first != nullptr, kType, "operation '", operation.name, "' was given no DTensor");
  return *first;
}

/// A plain tensor of one element, which every rank holds.
DTensor replicated(const at::Tensor& tensor, const DTensor& beside) {
  std::vector<Placement> placements(beside.placements().size(), Replicate{});
  return DTensor::unchecked(tensor, beside.mesh(), beside.layout().with_placements(std::move(placements)),
                            tensor.sizes().vec());
}

}  // namespace

RuledOperands::RuledOperands(const Operation& operation, const BoundArguments& arguments)
    : first_(&first_dtensor(operation, arguments)) {
  for_each_tensor(arguments, [&](std::string_view name, const Argument& argument) {
    const DTensor* tensor = argument.dtensor();
    if (tensor == nullptr) {
      check_one_element(operation, name, argument, "distribute it");
      tensor = &replicated_.emplace_back(replicated(*argument.plain_tensor(), *first_));
    }
    operands_.push_back({name, tensor});
    shapes_.emplace_back(tensor->shape());
  });
}

}  // namespace hyper_parallel
