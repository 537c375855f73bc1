#include "hyper_parallel/torch/ruled_plan.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "hyper_parallel/torch/operation_rules.h"

namespace hyper_parallel {
namespace {

/// Texts of which none begins another: each value is written behind a letter for its kind, lists and texts behind their
/// length.
class CallText {
 public:
  void add(char kind) { text_ += kind; }

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void add(char kind, const T& value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    text_ += kind;
    text_.append(bytes, sizeof(T));
  }

  void add(const Argument& value) {
    if (value.is_tensor()) return add('t');
    if (const at::Scalar* number = value.number()) return add(*number);
    if (const at::ScalarType* dtype = value.dtype()) return add('d', *dtype);
    if (const at::MemoryFormat* format = value.memory_format()) return add('m', *format);
    if (const std::string_view* text = value.text()) {
      add('s', text->size());
      text_ += *text;
      return;
    }
    if (const Argument::List* items = value.items()) {
      add('l', items->size());
      for (const Argument& item : *items) add(item);
      return;
    }
    add('n');
  }

  std::string take() { return std::move(text_); }

 private:
  void add(const at::Scalar& number) {
    if (number.isBoolean()) return add('b', number.toBool());
    if (number.isFloatingPoint()) return add('f', number.toDouble());
    if (number.isComplex()) return add('c', number.toComplexDouble());
    add('i', number.toLong());
  }

  std::string text_;
};

/// The rule of an elementwise operation reads shapes alone: the numbers of its call are left out, or the plans of x +
/// 1, x + 2, .. would drive each other out.
std::string call_text(const Operation& operation, const BoundCall& call) {
  CallText text;
  text.add('o', &operation);
  text.add('v', call.overload);
  if (is_elementwise(operation)) return text.take();
  for (const BoundArgument& argument : call.arguments) {
    if (argument.value == nullptr) {
      text.add('-');  // the default
    } else {
      text.add(*argument.value);
    }
  }
  return text.take();
}

Rule rule_of(const Operation& operation, const BoundCall& call, const RuledOperands& operands) {
  const RuleArguments arguments(call.arguments, operands.shapes());
  return operation.rule == nullptr ? elementwise_rule(arguments) : operation.rule(arguments);
}

int64_t item_bytes(const DTensor& tensor) { return static_cast<int64_t>(c10::elementSize(tensor.dtype())); }

CallPlan make_plan(const Operation& operation, const BoundCall& call, const RuledOperands& operands) {
  std::vector<GivenOperand> given;
  for (const RuledOperands::Operand& operand : operands.all()) {
    given.push_back({operand.name, operand.tensor->layout(), item_bytes(*operand.tensor)});
  }
  return plan_call(operation.name, rule_of(operation, call, operands), given,
                   operation.writes ? std::optional<size_t>(0) : std::nullopt, operands.first().mesh().rank());
}

}  // namespace

CallKey call_key(const Operation& operation, const BoundCall& call, const RuledOperands& operands) {
  CallKey key{call_text(operation, call), {}, operands.first().mesh().rank()};
  key.operands.reserve(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    key.operands.push_back({operands.shapes()[i], operands[i].layout(), item_bytes(operands[i])});
  }
  return key;
}

std::shared_ptr<const CallPlan> plan_of(const Operation& operation, const BoundCall& call,
                                        const RuledOperands& operands) {
  return operands.first().mesh().calls().get(call_key(operation, call, operands),
                                             [&] { return make_plan(operation, call, operands); });
}

}  // namespace hyper_parallel
