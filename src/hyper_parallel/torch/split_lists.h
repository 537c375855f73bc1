#pragma once

// Split lists: how many rows of dim 0 each member of a group contributes to, or gets from, a variable collective.
//
// A split list has one entry per member, in group order, none negative; [] is not [0, 0]. The rows of member r are
// [offset_r, offset_r + splits[r]) with offset_r = splits[0] + .. + splits[r-1].

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hyper_parallel {

/// Throws kInvalidArgument unless `splits` has `group_size` entries, none negative, whose sum fits in int64.
/// `operation` and `argument` name the place in the message.
void check_splits(std::string_view operation, std::string_view argument, at::IntArrayRef splits, int64_t group_size);

/// Throws kInvalidArgument if `input` has no dim 0, kType if it is undefined.
void check_has_rows(std::string_view operation, const at::Tensor& input);

/// Throws kInvalidArgument unless `splits` sums to the rows of `input`.
void check_splits_cover(std::string_view operation, std::string_view argument, at::IntArrayRef splits,
                        const at::Tensor& input);

/// The rows of each member as views of `tensor`, whose dim 0 has sum(splits) rows.
std::vector<at::Tensor> split_rows(const at::Tensor& tensor, at::IntArrayRef splits);

/// An uninitialized contiguous tensor like `input` with `rows` rows instead of its own.
at::Tensor empty_rows_like(const at::Tensor& input, int64_t rows);

/// `input` as plain memory in row-major order: strides, conjugation and negation resolved; no copy if it is so already.
at::Tensor as_plain_rows(const at::Tensor& input);

/// What all members must agree on: dtype, the shape behind dim 0, and whether a backward will follow. `argument` names
/// the tensor. Example: "input: dtype float, row shape (4,), requires_grad true".
std::string describe_rows(std::string_view argument, const at::Tensor& input);

}  // namespace hyper_parallel
