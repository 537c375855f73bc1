#include "hyper_parallel/torch/extreme_ties.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sum.h>

#include <utility>

#include "hyper_parallel/torch/scalar_dtype.h"

namespace hyper_parallel {

ExtremeTies::ExtremeTies(at::Tensor counts, const at::Tensor& share)
    : counts_(std::move(counts)), version_(share.unsafeGetTensorImpl()->version_counter().current_version()) {}

at::Tensor ExtremeTies::of(const at::Tensor& share) const {
  const bool is_written = share.unsafeGetTensorImpl()->version_counter().current_version() != version_;
  return is_written ? at::Tensor() : counts_;
}

at::Tensor count_ties(const at::Tensor& local, const at::Tensor& share, at::IntArrayRef dims, NanTies nans) {
  const at::NoGradGuard constant;
  const bool keeps_dims = share.dim() == local.dim();
  at::Tensor broadcast = share;
  if (!keeps_dims) {
    for (const int64_t dim : dims) broadcast = broadcast.unsqueeze(dim);
  }
  // Strides as those of the share: a view of it is a view of the counts too.
  at::Tensor counts = at::empty_like(share, share.options().dtype(wide_dtype(share.scalar_type())));
  at::Tensor has = at::eq(local, broadcast);
  if (nans == NanTies::kAll) has = has.logical_or_(at::isnan(local));  // one makes the extreme NaN
  counts.copy_(at::sum(has, dims, keeps_dims, counts.scalar_type()));
  return counts;
}

}  // namespace hyper_parallel
