#pragma once

// One round of a reduction: every member of a group gives each member a share, and each combines what it gets.
//
//   output_r = x_0,r (op) x_1,r (op) .. (op) x_n-1,r       x_s,r: what member s holds of member r's share
//
// The terms are combined in the members' order, ((x_0 + x_1) + x_2) + .., in the dtype of the tensors as torch's
// all_reduce does, so equal inputs give equal bits in every run, whatever part of the tensor a rank reduces.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "hyper_parallel/redistribute/combine.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel {

enum class Reduction { kSum, kMax, kMin };

/// "sum", "max", "min".
std::string_view to_string(Reduction reduction);

/// What a dtype's numbers are, for the core's `check_reducible`.
NumberKind number_kind(at::ScalarType dtype);

/// Throws kType for a dtype that the reduction does not have, as the core's.
void check_reducible(std::string_view operation, at::ScalarType dtype, Reduction reduction);

struct ReduceRound {
  std::vector<int64_t> members;    // group-relative ranks, in the order in which terms are combined; this rank is one
  std::vector<at::Tensor> shares;  // shares[i]: what this rank holds of member i's share; 1-D, contiguous
};

/// Fills `output`, 1-D, contiguous and as long as this rank's own share, by point-to-point messages. Where the backend
/// prefers these, shares travel in pieces, of which the first peer's land in `output` itself, so that little memory is
/// needed beside it. NaN wins in max and min. No autograd. Every member must call with the same members and with shares
/// of the sizes that the others expect. Throws kFailedPrecondition as `exchange_messages`.
void reduce_shares(c10d::ProcessGroup& group, const ReduceRound& round, Reduction reduction, const at::Tensor& output);

}  // namespace hyper_parallel
