#pragma once

// The table of operations: which exist on a DTensor, under which ATen overloads, and what decides how their operands
// and results lie. What is not in the table is refused by name.
//
//   elementwise   on every layout, ragged ones too; `partial` says what may run on pending reductions
//   ruled         on normal layouts, by the rule that `rule` makes of a call (`operation_rules.h`)
//   composite     on normal layouts, by a function of its own; in-place random numbers on ragged ones too
//
// The table is constant data: resolved against torch's dispatcher once, at first use.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel {

enum class ParameterKind {
  kTensor,
  kTensorList,
  kNumber,
  kFloat,
  kNumberList,
  kDtype,
  kMemoryFormat,
  kText,
  kFlag,
  kInteger,
  kIntegerList,
  kNothing,  // device, storage layout: of no meaning on a DTensor, so that None alone is taken
};

/// "a tensor", "a number", ..., for messages.
std::string_view to_string(ParameterKind kind);

/// A parameter of an ATen schema.
struct Parameter {
  std::string name;
  ParameterKind kind;
  bool optional;  // None is a value
  bool keyword_only;
  bool written;
  std::optional<c10::IValue> default_value;
};

struct Overload {
  c10::OperatorHandle op;
  std::vector<Parameter> parameters;
};

/// When an operation may run on the shares of a Partial tensor: where it commutes with the reduction, and nothing else.
enum class PartialRule {
  kNever,
  kIdentity,  // clone, detach, copy_: any reduction; several operands have equal layout and dtype
  kAnyValue,  // zeros_like, zero_, empty_like: any reduction of zeros is zero
  kNegate,    // sum, avg
  kSum,       // sum, avg: operands of equal layout and dtype, nothing else beside them
  kScale,     // sum, avg: by a finite number, without a change of dtype; a divisor not zero
  kWiden,     // to(dtype): any reduction, to a floating dtype that holds every value of the old one
};

/// How the arguments of the name reach the ATen operation.
enum class Form {
  kAsNamed,
  kExchanged,    // rpow(x, a) is pow(a, x)
  kDividedInto,  // rdiv(x, a) is div(a, x), and a * reciprocal(x) for a number, as torch's a / x
};

class RuleArguments;
struct Rule;
using RuleMaker = Rule (*)(const RuleArguments&);

/// An operation of several rounds, which is more than a rule can say.
struct BoundCall;
struct Operation;
using Composite = std::vector<DTensor> (*)(const Operation& operation, const BoundCall& call);

/// How a ruled operation is called on local tensors, where it is not with the caller's arguments.
enum class LocalCall {
  kAsCalled,
  kResultSizes,  // the sizes among the arguments are those of the local result
  kView,         // the local tensor is viewed in the shape of the local result
  kReshape,      // the same, or a copy where a view cannot be
  kMean,         // the sum, divided by the number of cells that all ranks have
  kExtreme,      // max or min, where a rank may have no cell to take
  kMeanLoss,     // a loss: its mean is its sum, divided by the number of cells that all ranks have
  kClassLoss,    // the same, divided by the weights of all ranks' targets
};

struct Operation {
  std::string name;
  PartialRule partial;
  Form form;
  std::vector<Overload> overloads;  // the first that fits is called
  bool is_list;                     // a _foreach form: works on lists of tensors, element by element
  bool writes;                      // an in-place form
  RuleMaker rule = nullptr;         // null: elementwise, or composite
  Composite composite = nullptr;
  LocalCall local = LocalCall::kAsCalled;
  bool is_view = false;       // results share the first operand's storage
  bool returns_list = false;  // of tensors, however many
  bool takes_ragged = true;   // works on ragged layouts beside normal ones
};

/// The operation of that name, null if the table does not hold it.
const Operation* find_operation(std::string_view name);

/// All names in the table, sorted.
std::vector<std::string_view> operation_names();

/// Throws kUnimplemented for a name that is not in the table, with the reason and what to do instead. `operand` is the
/// tensor it was to work on.
[[noreturn]] void refuse_operation(std::string_view name, const DTensor& operand);

}  // namespace hyper_parallel
