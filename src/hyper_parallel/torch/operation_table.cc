#include "hyper_parallel/torch/operation_table.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/operation_rules.h"

namespace hyper_parallel {
namespace {

struct Row {
  std::string_view name;
  std::string_view overloads = "";  // of the ATen operation, separated by '|'; "" is the overload without a name
  PartialRule partial = PartialRule::kNever;
  std::string_view aten = "";  // the ATen operation if it is called otherwise
  Form form = Form::kAsNamed;
};

constexpr std::string_view kBinary = "Tensor|Scalar";
constexpr std::string_view kRounding = "Tensor|Scalar|Tensor_mode|Scalar_mode";
constexpr std::string_view kPow = "Tensor_Tensor|Tensor_Scalar|Scalar";
constexpr std::string_view kWhere = "self|ScalarOther|ScalarSelf|Scalar";
constexpr std::string_view kLists = "List|Scalar|ScalarList";
constexpr std::string_view kListsOrTensor = "List|Scalar|ScalarList|Tensor";

using enum PartialRule;

// clang-format off
constexpr auto kRows = std::to_array<Row>({
    // Unary.
    {"abs"}, {"abs_"}, {"absolute"}, {"absolute_"}, {"cos"}, {"cos_"}, {"exp"}, {"exp_"}, {"gelu"}, {"gelu_"},
    {"isinf"}, {"isnan"}, {"log"}, {"log_"}, {"reciprocal"}, {"reciprocal_"}, {"relu"}, {"relu_"}, {"rsqrt"},
    {"rsqrt_"}, {"sigmoid"}, {"sigmoid_"}, {"sign"}, {"sign_"}, {"silu"}, {"silu_"}, {"sin"}, {"sin_"}, {"sqrt"},
    {"sqrt_"}, {"square"}, {"square_"},
    {"neg", "", kNegate}, {"neg_", "", kNegate}, {"negative", "", kNegate}, {"negative_", "", kNegate},
    {"clone", "", kIdentity}, {"detach", "", kIdentity}, {"to", "dtype", kWiden},

    // Binary, with their reversed forms.
    {"add", kBinary, kSum}, {"add_", kBinary, kSum}, {"sub", kBinary, kSum}, {"sub_", kBinary, kSum},
    {"mul", kBinary, kScale}, {"mul_", kBinary, kScale},
    {"div", kRounding, kScale}, {"div_", kRounding, kScale},
    {"true_divide", kBinary, kScale}, {"true_divide_", kBinary, kScale}, {"real_div", kBinary, kScale, "true_divide"},
    {"pow", kPow}, {"pow_", kBinary},
    {"radd", kBinary, kSum, "add"}, {"__radd__", kBinary, kSum, "add"},
    {"rsub", kBinary, kSum}, {"__rsub__", kBinary, kSum, "rsub"},
    {"rmul", kBinary, kScale, "mul"}, {"__rmul__", kBinary, kScale, "mul"},
    {"rdiv", "Tensor", kNever, "div", Form::kDividedInto}, {"__rdiv__", "Tensor", kNever, "div", Form::kDividedInto},
    {"__rtruediv__", "Tensor", kNever, "div", Form::kDividedInto},
    {"rpow", kPow, kNever, "pow", Form::kExchanged}, {"__rpow__", kPow, kNever, "pow", Form::kExchanged},
    {"maximum"}, {"minimum"},
    {"eq", kBinary}, {"ne", kBinary}, {"lt", kBinary}, {"le", kBinary}, {"gt", kBinary}, {"ge", kBinary},

    // Three operands, bounds.
    {"lerp", kBinary}, {"lerp_", kBinary}, {"addcmul"}, {"addcmul_"}, {"addcdiv"}, {"addcdiv_"},
    {"clamp", "Tensor|"}, {"clamp_", "Tensor|"}, {"clamp_min", "Tensor|"}, {"clamp_min_", "Tensor|"},
    {"clamp_max", "Tensor|"}, {"clamp_max_", "Tensor|"}, {"where", kWhere},

    // Filling and creating.
    {"copy_", "", kIdentity}, {"zero_", "", kAnyValue}, {"fill_", kBinary},
    {"zeros_like", "", kAnyValue}, {"empty_like", "", kAnyValue}, {"ones_like"}, {"full_like"},

    // The forms on lists that torch.optim calls.
    {"_foreach_abs"}, {"_foreach_abs_"}, {"_foreach_neg", "", kNegate}, {"_foreach_neg_", "", kNegate},
    {"_foreach_reciprocal_"}, {"_foreach_rsqrt_"}, {"_foreach_sign_"}, {"_foreach_sqrt"}, {"_foreach_sqrt_"},
    {"_foreach_zero_", "", kAnyValue}, {"_foreach_copy_", "", kIdentity},
    {"_foreach_add", kListsOrTensor, kSum}, {"_foreach_add_", kListsOrTensor, kSum},
    {"_foreach_sub", kLists, kSum}, {"_foreach_sub_", kLists, kSum},
    {"_foreach_mul", kListsOrTensor, kScale}, {"_foreach_mul_", kListsOrTensor, kScale},
    {"_foreach_div_", kListsOrTensor, kScale},
    {"_foreach_pow", "List|Scalar|ScalarList|ScalarAndTensor"}, {"_foreach_pow_", kLists},
    {"_foreach_maximum_", kLists}, {"_foreach_minimum_", kLists}, {"_foreach_clamp_min_", kLists},
    {"_foreach_clamp_max_", kLists}, {"_foreach_lerp_", kLists},
    {"_foreach_addcmul", "Scalar|ScalarList|Tensor"}, {"_foreach_addcmul_", "Scalar|ScalarList|Tensor"},
    {"_foreach_addcdiv_", "Scalar|ScalarList|Tensor"},
});

/// Refused for a reason of their own. Also in-place, with '_' behind.
constexpr auto kRandom = std::to_array<std::string_view>({
    "alpha_dropout", "bernoulli", "binomial", "cauchy", "dropout", "exponential", "feature_alpha_dropout",
    "feature_dropout", "geometric", "gumbel_softmax", "log_normal", "multinomial", "native_dropout", "normal", "poisson",
    "rand_like", "randint_like", "randn_like", "random", "rrelu", "uniform",
});
// clang-format on

ParameterKind element_kind(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return ParameterKind::kTensor;
    case c10::TypeKind::NumberType:
      return ParameterKind::kNumber;
    case c10::TypeKind::FloatType:
      return ParameterKind::kFloat;
    case c10::TypeKind::ScalarTypeType:
      return ParameterKind::kDtype;
    case c10::TypeKind::MemoryFormatType:
      return ParameterKind::kMemoryFormat;
    case c10::TypeKind::StringType:
      return ParameterKind::kText;
    case c10::TypeKind::BoolType:
      return ParameterKind::kFlag;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ParameterKind::kInteger;
    default:
      return ParameterKind::kNothing;
  }
}

ParameterKind kind_of(const c10::Type& type) {
  if (const auto list = type.cast<c10::ListType>()) {
    const ParameterKind item = element_kind(*list->getElementType());
    if (item == ParameterKind::kTensor) return ParameterKind::kTensorList;
    if (item == ParameterKind::kNumber) return ParameterKind::kNumberList;
    if (item == ParameterKind::kInteger) return ParameterKind::kIntegerList;
    return ParameterKind::kNothing;
  }
  return element_kind(type);
}

Parameter parameter_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  const auto optional = type->cast<c10::OptionalType>();
  if (optional) type = optional->getElementType();
  const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  return {argument.name(),       kind_of(*type), optional != nullptr,
          argument.kwarg_only(), written,        argument.default_value()};
}

Overload overload_of(const std::string& aten, const std::string& overload) {
  Overload resolved{c10::Dispatcher::singleton().findSchemaOrThrow(aten.c_str(), overload.c_str()), {}};
  for (const c10::Argument& argument : resolved.op.schema().arguments()) {
    resolved.parameters.push_back(parameter_of(argument));
  }
  return resolved;
}

bool returns_view(const Overload& overload) {
  const std::vector<c10::Argument>& returns = overload.op.schema().returns();
  return !returns.empty() && returns.front().alias_info() != nullptr && !returns.front().alias_info()->isWrite();
}

bool returns_tensor_list(const Overload& overload) {
  const std::vector<c10::Argument>& returns = overload.op.schema().returns();
  return returns.size() == 1 && kind_of(*returns.front().type()) == ParameterKind::kTensorList;
}

/// Of an elementwise operation.
constexpr RuledRow kNoRule{.name = "", .overloads = "", .rule = nullptr, .layouts = RuledRow::Layouts::kEvery};

Operation operation_of(const Row& row, const RuledRow& ruled = kNoRule) {
  const std::string aten = str_cat("aten::", row.aten.empty() ? row.name : row.aten);
  Operation operation{std::string(row.name), row.partial, row.form, {}, false, false};
  operation.rule = ruled.rule;
  operation.composite = ruled.composite;
  operation.local = ruled.local;
  operation.takes_ragged = ruled.layouts == RuledRow::Layouts::kEvery;
  const bool elementwise = ruled.rule == nullptr && ruled.composite == nullptr;
  for (std::string_view rest = row.overloads;;) {
    const size_t bar = rest.find('|');
    operation.overloads.push_back(overload_of(aten, std::string(rest.substr(0, bar))));
    if (bar == std::string_view::npos) break;
    rest.remove_prefix(bar + 1);
  }
  for (const Parameter& parameter : operation.overloads.front().parameters) {
    const bool on_lists = elementwise && parameter.kind == ParameterKind::kTensorList;
    operation.is_list = operation.is_list || on_lists;
    operation.writes = operation.writes || parameter.written;
  }
  operation.returns_list = !elementwise && returns_tensor_list(operation.overloads.front());
  operation.is_view = !elementwise && !operation.writes && returns_view(operation.overloads.front());
  return operation;
}

/// Finding takes a string_view without making a string of it.
using Table = std::map<std::string, Operation, std::less<>>;

const Table& table() {
  static const Table kTable = [] {
    Table made;
    for (const Row& row : kRows) made.emplace(row.name, operation_of(row));
    for (const RuledRow& row : ruled_rows()) {
      made.emplace(row.name, operation_of({row.name, row.overloads}, row));
    }
    return made;
  }();
  return kTable;
}

bool is_random(std::string_view name) {
  const std::string_view base = name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
  return std::ranges::find(kRandom, base) != kRandom.end();
}

}  // namespace

std::string_view to_string(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kTensor:
      return "a tensor";
    case ParameterKind::kTensorList:
      return "a list of tensors";
    case ParameterKind::kNumber:
    case ParameterKind::kFloat:
      return "a number";
    case ParameterKind::kNumberList:
      return "a list of numbers";
    case ParameterKind::kDtype:
      return "a dtype";
    case ParameterKind::kMemoryFormat:
      return "a memory format";
    case ParameterKind::kText:
      return "a text";
    case ParameterKind::kFlag:
      return "True or False";
    case ParameterKind::kInteger:
      return "an int";
    case ParameterKind::kIntegerList:
      return "ints";
    case ParameterKind::kNothing:
      return "None";
  }
  return "";
}

const Operation* find_operation(std::string_view name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

std::vector<std::string_view> operation_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, operation] : table()) names.push_back(name);
  return names;
}

void refuse_operation(std::string_view name, const DTensor& operand) {
  if (is_random(name)) {
    raise(ErrorCode::kUnimplemented, "operation '", name,
          "' draws random numbers, and equal seeds would give equal shares on all ranks; "
          "draw on a plain tensor and distribute that");
  }
  if (operand.layout().is_ragged()) {
    raise(ErrorCode::kUnimplemented, "operation '", name,
          "' is not supported on a ragged DTensor; redistribute to Replicate and leave by full_tensor(), "
          "or take to_local() for this rank's share");
  }
  raise(ErrorCode::kUnimplemented, "operation '", name, "' is not supported on a DTensor with placements ",
        short_text(operand.placements()),
        "; redistribute to Replicate and leave by full_tensor(), "
        "or take to_local() for this rank's part");
}

}  // namespace hyper_parallel
