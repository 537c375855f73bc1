#pragma once

// StridedView: an N-D block of cells inside a rank's flat local storage. Units are elements.

#include <string>

#include "hyper_parallel/base/dims.h"

namespace hyper_parallel {

/// Cell x lies at offset + sum(x[d] * strides[d]), 0 <= x[d] < sizes[d]. Kept in its smallest form: dims of size 1 are
/// left out and dims that continue one another are one, so a contiguous view has sizes (n,) and strides (1,).
struct StridedView {
  int64_t offset = 0;
  Dims sizes;
  Dims strides;

  int64_t numel() const;
  bool is_contiguous() const { return sizes.size() == 1 && strides[0] == 1; }
  friend bool operator==(const StridedView&, const StridedView&) = default;
};

/// A run of `count` elements from `offset`.
StridedView run_view(int64_t offset, int64_t count);

/// The smallest form of the view (offset, sizes, strides); no size is 0.
StridedView collapsed_view(int64_t offset, const Dims& sizes, const Dims& strides);

/// "[5:17]" for a run, else "5+(2, 3)*(12, 1)".
std::string to_string(const StridedView& view);

}  // namespace hyper_parallel
