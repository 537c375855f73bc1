#pragma once

// The tensor that the timed rows spread over the ranks: a float32 matrix of rows of 8 KiB.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "benchmarks/bench_collectives/bare.h"
#include "benchmarks/bench_collectives/ranks.h"
#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel::benchmarks {

/// The matrix of `size_mib` MiB; its elements count up, as far as float32 can.
at::Tensor matrix(int64_t size_mib);

/// Rows for each rank in proportion to `units`.
Splits splits_of(const at::Tensor& whole, const Splits& units);

/// This rank's rows in storage of their own.
at::Tensor own_rows(const at::Tensor& whole, const Splits& splits, int64_t rank);

/// The 1-D mesh of all ranks.
MeshCommunicator line_of(const Ranks& ranks);

/// `whole` laid out by placements as `parse_placements` reads them.
DTensor laid_out(const at::Tensor& whole, const MeshCommunicator& mesh, std::string_view placements);

}  // namespace hyper_parallel::benchmarks
