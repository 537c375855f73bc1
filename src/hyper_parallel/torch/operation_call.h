#pragma once

// Elementwise operations on DTensors, called by name: the one way in for the named functions of elementwise.h, for
// demos and tests over the whole table, and for other languages.
//
// An operation runs on the ranks' local tensors and communicates nothing in its forward pass. The result has the layout
// and shape of the first ragged operand, else of the first DTensor (of more than one element); its dtype and
// requires_grad follow as in plain torch, on ranks without elements too. `elementwise_operands.h` says which operands
// may stand beside each other, `elementwise_partial.h` what may run on Partial tensors, `operation_names()` which
// operations there are; all else is refused by name.
//
// Errors of torch itself (an in-place result that cannot be cast, a leaf that requires grad written in place) pass as
// c10::Error, alike on all ranks.

#include <c10/util/ArrayRef.h>

#include <string_view>
#include <vector>

#include "hyper_parallel/torch/operation_argument.h"
#include "hyper_parallel/torch/operation_table.h"

namespace hyper_parallel {

/// Calls the operation `name` with torch's names, order and meaning of arguments. Returns one DTensor, or for the
/// _foreach forms one per list element. In-place forms change the first argument's storage and return it.
///
/// Throws, on every rank and before anything is computed: kUnimplemented for a name outside the table and for `out`;
/// kType if the arguments do not fit; and as `aligned_local` and `check_commutes`.
///
/// Example: call("add", {x, y}, {{"alpha", 2}}).front(), call("rsub", {x, 1.0}), call("_foreach_mul_",
/// {Argument::list(xs), 0.9}).
std::vector<DTensor> call(std::string_view name, c10::ArrayRef<Argument> arguments,
                          c10::ArrayRef<Keyword> keywords = {});

/// The same for an operation of the table; for callers that keep it.
std::vector<DTensor> call(const Operation& operation, c10::ArrayRef<Argument> arguments,
                          c10::ArrayRef<Keyword> keywords = {});

}  // namespace hyper_parallel
