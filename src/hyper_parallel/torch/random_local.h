#pragma once

// This rank's part of a random tensor: its elements as functions of their positions in the whole tensor, computed on
// the CPU, a large part by as many threads as torch uses, and moved to the tensor's device from there.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "hyper_parallel/base/dims.h"
#include "hyper_parallel/geometry/region.h"
#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/random/random_stream.h"

namespace hyper_parallel {

/// What a rank holds of a tensor of `shape`: `region`, in a local tensor of `sizes`.
struct LocalPart {
  Region region;
  Dims shape;
  Dims sizes;
};

/// What `rank` holds of a tensor of `shape` under `layout`; no cells outside the mesh.
LocalPart local_part(const Layout& layout, const std::vector<int64_t>& shape, int64_t rank);

/// Throws kType unless random numbers can be drawn in `dtype`: float64, float32, float16 and bfloat16.
void check_random_dtype(std::string_view operation, at::ScalarType dtype);

/// Uniform in [0, 1). In float16 and bfloat16 the float32 numbers rounded down, so that 1 is never reached.
at::Tensor uniform_local(const RandomStream& stream, const LocalPart& part, const at::TensorOptions& options);

/// Standard normal. In float16 and bfloat16 the float32 numbers rounded to nearest.
at::Tensor normal_local(const RandomStream& stream, const LocalPart& part, const at::TensorOptions& options);

/// 1 / kept with probability `kept` in (0, 1), else 0: what dropout multiplies by.
at::Tensor dropout_local(const RandomStream& stream, const LocalPart& part, double kept,
                         const at::TensorOptions& options);

}  // namespace hyper_parallel
