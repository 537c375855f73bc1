#pragma once

// The operations on normal layouts that have a rule (`operations/rule.h`): which they are, how the arguments of a call
// make the rule, and what the call looks like on local tensors.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hyper_parallel/operations/rule.h"
#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// The arguments of one call as a rule sees them: shapes of tensors, and numbers. A name that is no parameter of the
/// overload is an internal error.
class RuleArguments {
 public:
  /// `shapes` are those of the tensors in `arguments`, in order, lists looked into.
  RuleArguments(const BoundArguments& arguments, std::span<const Dims> shapes)
      : arguments_(arguments), shapes_(shapes) {}

  std::span<const Dims> shapes() const { return shapes_; }
  const Dims& shape(size_t index) const { return shapes_[index]; }
  size_t ndim() const { return shapes_.front().size(); }

  /// Whether the overload that was called has the parameter, and whether its value is not None.
  bool has(std::string_view name) const;
  bool is_given(std::string_view name) const;
  /// Whether the argument is one int.
  bool is_integer(std::string_view name) const;
  /// The argument or its default.
  int64_t integer(std::string_view name) const;
  bool flag(std::string_view name) const;
  double number(std::string_view name) const;
  std::string_view text(std::string_view name) const;
  /// None gives no numbers, a single number one.
  std::vector<int64_t> integers(std::string_view name) const;

 private:
  const BoundArgument& find(std::string_view name) const;

  const BoundArguments& arguments_;
  std::span<const Dims> shapes_;
};

/// A row of the table.
struct RuledRow {
  enum class Layouts { kNormal, kEvery };

  std::string_view name;
  std::string_view overloads;  // of the ATen operation, separated by '|'
  RuleMaker rule;
  LocalCall local = LocalCall::kAsCalled;
  std::string_view meaning = "";  // of the rule, for the documentation
  Composite composite = nullptr;  // instead of a rule, or calling it
  Layouts layouts = Layouts::kNormal;
};

std::span<const RuledRow> ruled_rows();

/// The rule of an elementwise operation.
Rule elementwise_rule(const RuleArguments& arguments);
/// Whether an operation has that rule, or none, and so works on cells at the same place.
bool is_elementwise(const Operation& operation);

}  // namespace hyper_parallel
