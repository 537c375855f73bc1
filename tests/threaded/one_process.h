#pragma once

// A distributed tensor as one process sees it: all ranks' shares in one plain tensor, reduced by plain torch
// operations, so that torch's own autograd says what the value is and what each rank's gradient must be.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "tests/reference/from_layout.h"

namespace hyper_parallel::test {

class OneProcess {
 public:
  /// `shares`: rank -> local storage under `layout`.
  OneProcess(const Layout& layout, std::vector<int64_t> shape, const reference::Shares& shares)
      : scheme_(reference::scheme_of(layout, shape)), shape_(std::move(shape)) {
    for (size_t dim = 0; dim < scheme_.rules.size(); ++dim) {
      if (scheme_.rules[dim].kind == reference::Rule::Kind::kPartial) pending_.push_back(dim);
    }
    std::vector<int64_t> sizes;
    for (const size_t dim : pending_) sizes.push_back(scheme_.mesh_shape[dim]);
    sizes.push_back(reference::element_count(scheme_));
    all_ = at::zeros(sizes, at::kDouble);
    for (const auto& [rank, share] : shares) {
      const auto owned = reference::owned_elements(scheme_, rank);
      share_of(all_, rank).index_put_({at::tensor(owned, at::kLong)}, at::tensor(share, at::kDouble));
    }
    all_.requires_grad_();
  }

  /// The value, differentiable.
  at::Tensor value() const {
    at::Tensor value = all_;
    for (size_t i = pending_.size(); i-- > 0;)
      value = reduced(value, scheme_.rules[pending_[i]].op, static_cast<int64_t>(i));
    return value.view(shape_);
  }

  /// What the rank's share gets as its gradient when the value's is `gradient`; flat.
  at::Tensor gradient(const at::Tensor& gradient, int64_t rank) const {
    all_.mutable_grad() = at::Tensor();
    value().backward(gradient);
    const auto owned = reference::owned_elements(scheme_, rank);
    return share_of(all_.grad(), rank).index_select(0, at::tensor(owned, at::kLong));
  }

 private:
  static at::Tensor reduced(const at::Tensor& terms, const std::string& op, int64_t dim) {
    if (op == "sum") return terms.sum(dim);
    if (op == "avg") return terms.mean(dim);
    return op == "max" ? terms.amax(dim) : terms.amin(dim);
  }

  at::Tensor share_of(const at::Tensor& all, int64_t rank) const {
    const auto coordinate = *reference::coordinate_of(scheme_, rank);
    at::Tensor share = all;
    for (const size_t dim : pending_) share = share.select(0, coordinate[dim]);
    return share;
  }

  reference::Scheme scheme_;
  std::vector<int64_t> shape_;
  std::vector<size_t> pending_;  // the Partial mesh dims
  mutable at::Tensor all_;       // sizes of the Partial mesh dims, then the elements
};

}  // namespace hyper_parallel::test
