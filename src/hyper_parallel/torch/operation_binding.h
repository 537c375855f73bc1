#pragma once

// Binding: which overload of an operation a call means, and which argument goes to which of its parameters.

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/torch/operation_argument.h"
#include "hyper_parallel/torch/operation_table.h"

namespace hyper_parallel {

struct BoundArgument {
  const Parameter* parameter;
  const Argument* value;  // null: the parameter's default

  bool is_tensor() const { return value != nullptr && value->is_tensor(); }
};

/// One per parameter, in the schema's order.
using BoundArguments = c10::SmallVector<BoundArgument, 8>;

struct BoundCall {
  const Overload* overload;
  BoundArguments arguments;
  std::vector<std::unique_ptr<Argument>> read;  // numbers that came as tensors, ints that came one by one
};

/// Binds positional `arguments` and `keywords` to the first overload that takes them. "input" is another name of
/// "self". The result refers to all it was given.
///
/// A plain tensor of no dims that needs no gradient is taken for a number where a tensor is not.
///
/// Throws kType, naming operation and argument, if no overload fits: too many arguments, one missing, given twice, of
/// an unknown name or of the wrong kind. Throws kUnimplemented for a keyword `out`.
BoundCall bind_arguments(const Operation& operation, c10::ArrayRef<Argument> arguments,
                         c10::ArrayRef<Keyword> keywords);

/// Throws kUnimplemented if a keyword is `out`.
void refuse_out(const Operation& operation, c10::ArrayRef<Keyword> keywords);

/// How many elements the lists of tensors or numbers in the call have. Throws kInvalidArgument if they differ.
size_t list_length(const Operation& operation, const BoundCall& call);

/// The arguments for element `index` of a call on lists: each list replaced by its element.
BoundArguments element_arguments(const BoundCall& call, size_t index);

/// The argument of the parameter `name`, null if there is no such parameter or its default stands.
const Argument* find_argument(const BoundArguments& arguments, std::string_view name);

/// The dtype that the argument `dtype` names, nothing if there is none.
std::optional<at::ScalarType> find_dtype(const BoundArguments& arguments);

/// "operation 'add': argument 'other'", for messages.
std::string place(const Operation& operation, std::string_view argument);

/// An argument that is no tensor, as the dispatcher takes it. Throws kUnimplemented for a memory format that changes
/// the order of the elements in memory.
c10::IValue to_ivalue(const Operation& operation, const BoundArgument& argument);

}  // namespace hyper_parallel
