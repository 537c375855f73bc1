#pragma once

// The baselines: what a program writes with c10d alone. Each returns a tensor that it allocates and keeps its input.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace hyper_parallel::benchmarks {

using Splits = std::vector<int64_t>;

/// Every member's rows by one send and one receive for each pair of members, straight into the output.
at::Tensor bare_gather(const at::Tensor& input, const Splits& splits, c10d::ProcessGroup& group);

/// Every member's rows by all_gather of inputs padded to the longest, trimmed and concatenated.
at::Tensor padded_gather(const at::Tensor& input, const Splits& splits, c10d::ProcessGroup& group);

/// torch's all_gather_into_tensor, for equal rows.
at::Tensor torch_gather(const at::Tensor& input, c10d::ProcessGroup& group);

/// torch's all_to_all_single; output and input splits count rows.
at::Tensor torch_all_to_all(const at::Tensor& input, Splits output_splits, Splits input_splits,
                            c10d::ProcessGroup& group);

/// torch's all_reduce (sum) of a copy, and of that this member's rows as a view.
at::Tensor all_reduce_and_slice(const at::Tensor& input, const Splits& splits, c10d::ProcessGroup& group);

/// splits[0] + .. + splits[rank - 1].
int64_t first_row(const Splits& splits, int64_t rank);

}  // namespace hyper_parallel::benchmarks
