#pragma once

// Redistribution: where a tensor comes from and goes to, and the way back of its gradient. Values that the autograd of
// every framework runs alike.
//
// Inside, a DTensor program means what the unsharded program means, so the gradient of a tensor lies as the tensor
// does, with Replicate where the tensor is Partial: all replicas' gradients are equal. The backward of source -> target
// takes the gradient from where it lies to the gradient layout of the source:
//
//   Shard, ragged -> Replicate        a slice
//   Replicate -> Shard, ragged        an all-gather
//   Partial -> anything               the incoming gradient on every rank; avg: divided by the group's size;
//                                     max, min: shared equally among the ranks that hold the extreme
//
// Leaving the DTensor world is the same function with another layout of the incoming gradient: outside, ranks may
// compute different losses, which are summed, so what is Replicate inside counts as Partial(sum).

#include <optional>
#include <span>
#include <vector>

#include "hyper_parallel/base/dims.h"
#include "hyper_parallel/layout/layout.h"

namespace hyper_parallel {

/// How the gradient of a tensor lies: as the tensor, Replicate where it is Partial.
Layout gradient_layout(const Layout& layout);

/// How a gradient that comes from outside lies: Partial(sum) where the tensor is Replicate, Replicate where it is
/// Partial (each share's own), else as the tensor.
Layout leaving_layout(const Layout& layout);

/// How the gradients that come back from outside lie where the user says so: `leaving_layout` without
/// `grad_placements`, else these, on a tensor of `ndim` dims. Throws kInvalidArgument for grad_placements that are not
/// as many as mesh dims, or neither the placement itself nor, on Replicate and Partial dims, Replicate, Partial(sum) or
/// Partial(avg); otherwise as `Layout` and `Layout::folded`.
Layout outside_gradient_layout(const Layout& layout, const std::optional<std::vector<Placement>>& grad_placements,
                               int64_t ndim);

struct Redistribution {
  Layout source;
  Layout target;
  Layout incoming;  // how the gradient of the result lies: gradient_layout(target), or what leaving says
  Dims shape;       // logical
  friend bool operator==(const Redistribution&, const Redistribution&) = default;
};

/// With the three layouts folded for tensors of that shape, as the functions below compare them.
Redistribution folded(const Redistribution& move);

/// True if nothing moves in either direction: the result is the input itself.
bool is_identity(const Redistribution& move);

/// The redistributions that do `move` one after the other, so that each has one rule for its gradient: `move` itself,
/// unless it resolves reductions whose gradients differ (a max behind a sum), the innermost first.
std::vector<Redistribution> parts_of(const Redistribution& move);

/// What takes the gradient of the result back to that of the source's share, up to the two factors below. `move` is one
/// of its own `parts_of`. Where it resolves a max or min each rank goes on with the gradient by a factor of its own, so
/// that what comes back to that is in shares.
Redistribution backward_of(const Redistribution& move);

/// Mesh dims on which the layout is Partial(sum) or Partial(avg): gradients of such shares are alike on all ranks.
std::vector<int64_t> linear_partial_dims(const Layout& layout);

/// How the gradient of a share is used that each rank has made of its own cells, Partial on `mesh_dims`: it stays as it
/// lies, and each rank goes on with it for these cells, so that what comes back to it is in shares there.
Redistribution use_of_gradient(const Layout& layout, std::span<const int64_t> mesh_dims, Dims shape);

/// What the gradient is divided by: the product of the group sizes over which the redistribution averages.
int64_t gradient_divisor(const Redistribution& move);

/// How a rank learns what its share of a max or min counts for: 1 / (ranks that hold the extreme) where it holds it,
/// else 0. With `share` under the source layout:
///
///   extreme = share, source -> reduced;  holds = 1 where share equals extreme, else 0
///   holders = holds, counted -> everywhere;  the gradient is multiplied by holds / holders
struct ExtremeGradient {
  Layout reduced;
  Layout counted;
  Layout everywhere;
  friend bool operator==(const ExtremeGradient&, const ExtremeGradient&) = default;
};

/// Nothing unless the innermost reduction that `move` resolves is a max or min.
std::optional<ExtremeGradient> extreme_gradient(const Redistribution& move);

}  // namespace hyper_parallel
