#include "hyper_parallel/operations/dims_argument.h"

#include <algorithm>
#include <numeric>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {

int64_t folded_dim(int64_t dim, size_t ndim) {
  const auto dims = std::max<int64_t>(static_cast<int64_t>(ndim), 1);
  HP_CHECK(dim >= -dims && dim < dims, kOutOfRange, "dim ", dim, " is out of range for a tensor of ", ndim, " dims");
  return dim < 0 ? dim + dims : dim;
}

std::vector<int64_t> folded_dims(std::span<const int64_t> dims, size_t ndim) {
  std::vector<int64_t> folded;
  for (const int64_t dim : dims) {
    const int64_t at = folded_dim(dim, ndim);
    HP_CHECK(std::ranges::find(folded, at) == folded.end(), kInvalidArgument, "dim ", dim,
             " stands twice among the dims, but must be unique");
    folded.push_back(at);
  }
  if (dims.empty()) {
    folded.resize(ndim);
    std::iota(folded.begin(), folded.end(), 0);
  }
  return folded;
}

}  // namespace hyper_parallel
