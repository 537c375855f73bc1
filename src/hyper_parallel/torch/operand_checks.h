#pragma once

// What every operation asks of its operands, however it lays them out. All throw alike on every rank.

#include <string_view>

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// Throws kFailedPrecondition unless `tensor`, the argument `name`, is the same rank's part as `other`: one that was
/// read from another rank's file is that rank's, whatever its layout says.
void check_same_rank(const Operation& operation, std::string_view name, const DTensor& tensor, const DTensor& other);

/// Throws kType unless the plain tensor that is the argument `name` has one element, which every rank can hold.
/// `advice` ends the message.
void check_one_element(const Operation& operation, std::string_view name, const Argument& argument,
                       std::string_view advice);

/// Throws kInvalidArgument if an in-place operation would write to a view of a tensor that had to be redistributed for
/// it: the write would not reach that tensor.
void check_reaches_base(const Operation& operation, const DTensor& written);

/// Throws kFailedPrecondition, with torch's text, for an in-place operation on a leaf that requires grad where autograd
/// records.
void check_no_leaf(const Operation& operation, const DTensor& written);

/// What `operation` makes of tensors of the logical shapes, without values: throws what torch throws for their dtypes
/// and shapes, an in-place form's cast or enlargement too.
at::Tensor outline_of(const Operation& operation, const BoundCall& call);

}  // namespace hyper_parallel
