#pragma once

// Reductions on raw bytes: the shares of a group's members, combined in mesh order.
//
//   output = ((x_0 (op) x_1) (op) x_2) .. / divisor        x_s: what member s holds
//
// Each step is rounded to the element type, as torch's operators round: sums of F16 and BF16 are taken in float and
// rounded after each term, integers wrap, complex numbers add part by part, NaN wins in max and min. So the libtorch
// layer, the simulator's order and every framework on these functions give the same bits; of NaNs the payload, and of
// zeros of unlike sign the sign of max and min, are not part of that.

#include <cstddef>
#include <span>
#include <string_view>

#include "hyper_parallel/base/dtype.h"
#include "hyper_parallel/redistribute/rank_plan.h"

namespace hyper_parallel {

/// What a tensor's elements are, as far as reductions care.
enum class NumberKind { kBool, kInteger, kReal, kComplex };

/// Throws kType for a reduction that numbers of the kind do not have: bool has none, complex numbers neither max nor
/// min, integers no average. `operation` starts the message, `dtype` is what the framework calls the type.
void check_reducible(std::string_view operation, NumberKind kind, std::string_view dtype, ReduceOp op);

/// The same for an element type; types that nothing computes with (F4, F8_E4M3) have no reduction either.
void check_reducible(std::string_view operation, DType dtype, ReduceOp op);

/// Combines `terms`, in the order of `combine.sources`, into `output`. All have the same number of bytes, whole
/// elements of `dtype`; `output` overlaps none of them. No alignment is needed.
///
/// Throws kType as `check_reducible`, kInvalidArgument for other sizes or a number of terms.
void combine_terms(const Combine& combine, DType dtype, std::span<const std::span<const std::byte>> terms,
                   std::span<std::byte> output);

}  // namespace hyper_parallel
