#include "hyper_parallel/torch/operation_binding.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>
#include <set>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

bool is_number(const Argument& argument) { return argument.number() != nullptr; }

/// A plain tensor that stands for a number, as in torch: no dims, no gradient.
bool is_tensor_number(const Argument& argument) {
  const at::Tensor* tensor = argument.plain_tensor();
  return tensor != nullptr && tensor->defined() && tensor->dim() == 0 && !tensor->requires_grad();
}

bool is_integer(const Argument& argument) {
  const at::Scalar* number = argument.number();
  return number != nullptr && number->isIntegral(/*includeBool=*/false);
}

bool accepts(const Parameter& parameter, const Argument& argument) {
  if (argument.is_none()) return parameter.optional;
  const Argument::List* items = argument.items();
  switch (parameter.kind) {
    case ParameterKind::kTensor:
      return argument.is_tensor();
    case ParameterKind::kTensorList:
      return items != nullptr && std::ranges::all_of(*items, &Argument::is_tensor);
    case ParameterKind::kNumber:
      return is_number(argument) || is_tensor_number(argument);
    case ParameterKind::kFloat:
      return is_number(argument) && !argument.number()->isComplex() && !argument.number()->isBoolean();
    case ParameterKind::kNumberList:
      return items != nullptr && std::ranges::all_of(*items, is_number);
    case ParameterKind::kDtype:
      return argument.dtype() != nullptr;
    case ParameterKind::kMemoryFormat:
      return argument.memory_format() != nullptr;
    case ParameterKind::kText:
      return argument.text() != nullptr;
    case ParameterKind::kFlag:
      return is_number(argument) && argument.number()->isBoolean();
    case ParameterKind::kInteger:
      return is_integer(argument);
    case ParameterKind::kIntegerList:
      return is_integer(argument) || (items != nullptr && std::ranges::all_of(*items, is_integer));
    case ParameterKind::kNothing:
      return false;
  }
  return false;
}

/// Why an overload does not fit. The overload that took the most arguments knows best.
struct Mismatch {
  enum class Kind { kTooMany, kUnknown, kTwice, kWrongKind, kMissing } kind;
  size_t taken;  // arguments that fit
  std::string_view name;
  const Argument* value = nullptr;
};

std::optional<size_t> parameter_index(const Overload& overload, std::string_view name) {
  for (size_t i = 0; i < overload.parameters.size(); ++i) {
    if (overload.parameters[i].name == name) return i;
  }
  return name == "input" ? parameter_index(overload, "self") : std::nullopt;
}

/// Whether the rest of the positional arguments are the ints of one list, the last parameter: x.view(2, 3).
bool is_spread(const Overload& overload, size_t index, c10::ArrayRef<Argument> rest) {
  const auto& parameters = overload.parameters;
  const bool is_last =
      index + 1 == parameters.size() || (index + 1 < parameters.size() && parameters[index + 1].keyword_only);
  return is_last && parameters[index].kind == ParameterKind::kIntegerList && std::ranges::all_of(rest, is_integer);
}

std::optional<Mismatch> bind_positional(const Overload& overload, c10::ArrayRef<Argument> arguments, BoundCall& call) {
  BoundArguments& bound = call.arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i + 1 < arguments.size() && is_spread(overload, i, arguments.slice(i))) {
      call.read.push_back(std::make_unique<Argument>(Argument::List(arguments.begin() + i, arguments.end())));
      bound[i].value = call.read.back().get();
      return std::nullopt;
    }
    if (i >= bound.size() || bound[i].parameter->keyword_only) return Mismatch{Mismatch::Kind::kTooMany, i, ""};
    if (!accepts(overload.parameters[i], arguments[i])) {
      return Mismatch{Mismatch::Kind::kWrongKind, i, overload.parameters[i].name, &arguments[i]};
    }
    bound[i].value = &arguments[i];
  }
  return std::nullopt;
}

std::optional<Mismatch> bind_keywords(const Overload& overload, c10::ArrayRef<Keyword> keywords, size_t taken,
                                      BoundArguments& bound) {
  for (const Keyword& keyword : keywords) {
    const auto index = parameter_index(overload, keyword.name);
    if (!index) return Mismatch{Mismatch::Kind::kUnknown, taken, keyword.name};
    if (bound[*index].value != nullptr) return Mismatch{Mismatch::Kind::kTwice, taken, keyword.name};
    if (!accepts(overload.parameters[*index], keyword.value)) {
      return Mismatch{Mismatch::Kind::kWrongKind, taken, keyword.name, &keyword.value};
    }
    bound[*index].value = &keyword.value;
    ++taken;
  }
  return std::nullopt;
}

std::optional<Mismatch> try_bind(const Overload& overload, c10::ArrayRef<Argument> arguments,
                                 c10::ArrayRef<Keyword> keywords, BoundCall& call) {
  BoundArguments& bound = call.arguments;
  bound.clear();
  for (const Parameter& parameter : overload.parameters) bound.push_back({&parameter, nullptr});
  if (auto mismatch = bind_positional(overload, arguments, call)) return mismatch;
  if (auto mismatch = bind_keywords(overload, keywords, arguments.size(), bound)) return mismatch;
  for (const BoundArgument& argument : bound) {
    if (argument.value == nullptr && !argument.parameter->default_value) {
      return Mismatch{Mismatch::Kind::kMissing, arguments.size() + keywords.size(), argument.parameter->name};
    }
  }
  return std::nullopt;
}

/// "a tensor or a number": what the overloads take for the parameter `name`.
std::string accepted_kinds(const Operation& operation, std::string_view name) {
  std::set<std::string_view> kinds;
  for (const Overload& overload : operation.overloads) {
    const auto index = parameter_index(overload, name);
    if (!index) continue;
    kinds.insert(to_string(overload.parameters[*index].kind));
    if (overload.parameters[*index].optional) kinds.insert("None");
  }
  return join(kinds, " or ");
}

std::string parameter_names(const Operation& operation) {
  std::set<std::string> names;
  for (const Overload& overload : operation.overloads) {
    for (const Parameter& parameter : overload.parameters) names.insert(str_cat("'", parameter.name, "'"));
  }
  return join(names, ", ");
}

[[noreturn]] void raise_mismatch(const Operation& operation, const Mismatch& mismatch) {
  const std::string what = str_cat("operation '", operation.name, "'");
  switch (mismatch.kind) {
    case Mismatch::Kind::kTooMany:
      raise(ErrorCode::kType, what, " takes at most ", mismatch.taken, " positional arguments; more were given");
    case Mismatch::Kind::kUnknown:
      raise(ErrorCode::kType, what, " has no argument '", mismatch.name, "'; it has ", parameter_names(operation));
    case Mismatch::Kind::kTwice:
      raise(ErrorCode::kType, place(operation, mismatch.name), " is given twice");
    case Mismatch::Kind::kWrongKind:
      raise(ErrorCode::kType, place(operation, mismatch.name), " is ", mismatch.value->describe(), " but must be ",
            accepted_kinds(operation, mismatch.name));
    case Mismatch::Kind::kMissing:
      raise(ErrorCode::kType, place(operation, mismatch.name), " is missing");
  }
  raise(ErrorCode::kInternal, what, ": unknown mismatch");
}

/// As IValue's own conversion, which g++ 12 warns about when it inlines it.
c10::IValue number_ivalue(const at::Scalar& number) {
  if (number.isBoolean()) return number.toBool();
  if (number.isFloatingPoint()) return number.toDouble();
  if (number.isComplex()) return number.toComplexDouble();
  return number.toLong();
}

c10::IValue integers_ivalue(const Argument& value) {
  c10::List<int64_t> integers;
  if (value.number() != nullptr) {
    integers.push_back(value.number()->toLong());
  } else {
    for (const Argument& item : *value.items()) integers.push_back(item.number()->toLong());
  }
  return integers;
}

/// Replaces tensors that stand for numbers by these.
void read_tensor_numbers(BoundCall& call) {
  for (BoundArgument& argument : call.arguments) {
    if (argument.value == nullptr || argument.parameter->kind != ParameterKind::kNumber) continue;
    if (!is_tensor_number(*argument.value)) continue;
    call.read.push_back(std::make_unique<Argument>(argument.value->plain_tensor()->item()));
    argument.value = call.read.back().get();
  }
}

}  // namespace

void refuse_out(const Operation& operation, c10::ArrayRef<Keyword> keywords) {
  for (const Keyword& keyword : keywords) {
    HP_CHECK(keyword.name != "out", kUnimplemented, place(operation, "out"),
             " is not supported on a DTensor; use the result or the in-place form");
  }
}

BoundCall bind_arguments(const Operation& operation, c10::ArrayRef<Argument> arguments,
                         c10::ArrayRef<Keyword> keywords) {
  refuse_out(operation, keywords);
  BoundCall call{nullptr, {}, {}};
  std::optional<Mismatch> best;
  for (const Overload& overload : operation.overloads) {
    const auto mismatch = try_bind(overload, arguments, keywords, call);
    if (!mismatch) {
      call.overload = &overload;
      read_tensor_numbers(call);
      return call;
    }
    if (!best || mismatch->taken > best->taken) best = mismatch;
  }
  raise_mismatch(operation, *best);
}

size_t list_length(const Operation& operation, const BoundCall& call) {
  std::optional<size_t> length;
  for (const BoundArgument& argument : call.arguments) {
    const Argument::List* items = argument.value == nullptr ? nullptr : argument.value->items();
    if (items == nullptr) continue;
    if (!length) length = items->size();
    HP_CHECK(items->size() == *length, kInvalidArgument, place(operation, argument.parameter->name), " is a list of ",
             items->size(), " but the lists before it have ", *length);
  }
  return length.value_or(0);
}

BoundArguments element_arguments(const BoundCall& call, size_t index) {
  BoundArguments element = call.arguments;
  for (BoundArgument& argument : element) {
    const Argument::List* items = argument.value == nullptr ? nullptr : argument.value->items();
    if (items != nullptr) argument.value = &(*items)[index];
  }
  return element;
}

const Argument* find_argument(const BoundArguments& arguments, std::string_view name) {
  for (const BoundArgument& argument : arguments) {
    if (argument.parameter->name == name) return argument.value;
  }
  return nullptr;
}

std::optional<at::ScalarType> find_dtype(const BoundArguments& arguments) {
  const Argument* dtype = find_argument(arguments, "dtype");
  return dtype == nullptr || dtype->dtype() == nullptr ? std::nullopt : std::optional(*dtype->dtype());
}

std::string place(const Operation& operation, std::string_view argument) {
  return str_cat("operation '", operation.name, "': argument '", argument, "'");
}

c10::IValue to_ivalue(const Operation& operation, const BoundArgument& argument) {
  if (argument.value == nullptr) return *argument.parameter->default_value;
  const Argument& value = *argument.value;
  if (argument.parameter->kind == ParameterKind::kIntegerList && !value.is_none()) return integers_ivalue(value);
  if (argument.parameter->kind == ParameterKind::kFloat && !value.is_none()) return value.number()->toDouble();
  if (const at::Scalar* number = value.number()) return number_ivalue(*number);
  if (const at::ScalarType* dtype = value.dtype()) return static_cast<int64_t>(*dtype);
  if (const std::string_view* text = value.text()) return std::string(*text);
  if (const at::MemoryFormat* format = value.memory_format()) {
    HP_CHECK(*format == at::MemoryFormat::Preserve || *format == at::MemoryFormat::Contiguous, kUnimplemented,
             place(operation, argument.parameter->name), " is ", value.describe(),
             "; a DTensor has the contiguous and the preserved format alone");
    return static_cast<int64_t>(*format);
  }
  if (const Argument::List* items = value.items()) {
    c10::impl::GenericList numbers(c10::NumberType::get());
    for (const Argument& item : *items) numbers.push_back(number_ivalue(*item.number()));
    return numbers;
  }
  HP_DCHECK(value.is_none());
  return {};
}

}  // namespace hyper_parallel
