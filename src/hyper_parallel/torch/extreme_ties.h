#pragma once

// ExtremeTies: what a rank's share of a max or min stands for, where a reduction has made it.
//
// torch shares the gradient of a max equally among all cells that have its value. Where the cells lie on several ranks
// each must get its part by the number of its own:
//
//   x         5 1 | 5 5      two ranks
//   share       5 | 5        their max
//   ties        1 | 2        so that the gradient comes back as 1/3 and 2/3, and to each 5 as 1/3

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hyper_parallel {

class ExtremeTies {
 public:
  /// `counts`, of the sizes of `share`: how many cells of this rank have its value, 0 where the rank has none.
  ExtremeTies(at::Tensor counts, const at::Tensor& share);

  /// The counts; undefined if the share has been written since.
  at::Tensor of(const at::Tensor& share) const;

 private:
  at::Tensor counts_;
  uint32_t version_;
};

/// Whether cells that are NaN have the value of a max or min that is NaN.
enum class NanTies { kNone, kAll };

/// How many cells of `local` have the value of `share`, their max or min over `dims`, in `wide_dtype` of it. `share`
/// keeps the dims if it has as many as `local`. No part of the graph.
at::Tensor count_ties(const at::Tensor& local, const at::Tensor& share, at::IntArrayRef dims, NanTies nans);

}  // namespace hyper_parallel
