#include "hyper_parallel/torch/operation_rules.h"

#include <algorithm>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/operations/pointwise_rule.h"

namespace hyper_parallel {

const BoundArgument& RuleArguments::find(std::string_view name) const {
  const auto* found =
      std::ranges::find(arguments_, name, [](const BoundArgument& a) -> std::string_view { return a.parameter->name; });
  HP_DCHECK(found != arguments_.end());
  return *found;
}

bool RuleArguments::has(std::string_view name) const {
  return std::ranges::any_of(arguments_, [&](const BoundArgument& a) { return a.parameter->name == name; });
}

bool RuleArguments::is_given(std::string_view name) const {
  if (!has(name)) return false;
  const BoundArgument& argument = find(name);
  return argument.value != nullptr ? !argument.value->is_none()
                                   : argument.parameter->default_value && !argument.parameter->default_value->isNone();
}

bool RuleArguments::is_integer(std::string_view name) const {
  return has(name) && find(name).value != nullptr && find(name).value->number() != nullptr;
}

int64_t RuleArguments::integer(std::string_view name) const {
  const BoundArgument& argument = find(name);
  return argument.value != nullptr ? argument.value->number()->toLong() : argument.parameter->default_value->toInt();
}

bool RuleArguments::flag(std::string_view name) const {
  const BoundArgument& argument = find(name);
  return argument.value != nullptr ? argument.value->number()->toBool() : argument.parameter->default_value->toBool();
}

double RuleArguments::number(std::string_view name) const {
  const BoundArgument& argument = find(name);
  return argument.value != nullptr ? argument.value->number()->toDouble()
                                   : argument.parameter->default_value->toScalar().toDouble();
}

std::string_view RuleArguments::text(std::string_view name) const {
  const BoundArgument& argument = find(name);
  return argument.value != nullptr ? *argument.value->text() : argument.parameter->default_value->toStringRef();
}

std::vector<int64_t> RuleArguments::integers(std::string_view name) const {
  const BoundArgument& argument = find(name);
  std::vector<int64_t> integers;
  if (argument.value == nullptr) {
    const c10::IValue& value = *argument.parameter->default_value;
    return value.isNone() ? integers : value.toIntVector();
  }
  if (argument.value->number() != nullptr) return {argument.value->number()->toLong()};
  if (argument.value->items() == nullptr) return integers;
  for (const Argument& item : *argument.value->items()) integers.push_back(item.number()->toLong());
  return integers;
}

Rule elementwise_rule(const RuleArguments& arguments) { return pointwise_rule(arguments.shapes()); }

bool is_elementwise(const Operation& operation) {
  return operation.rule == nullptr || operation.rule == elementwise_rule;
}

}  // namespace hyper_parallel
