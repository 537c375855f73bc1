#pragma once

// Arguments that name dims of a tensor, as torch takes them.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hyper_parallel {

/// `dim`, counted from the end if it is negative. A tensor of no dims has the dims 0 and -1, which mean the whole.
/// Throws kOutOfRange outside [-ndim, ndim).
int64_t folded_dim(int64_t dim, size_t ndim);

/// Each folded; all dims of the tensor if there are none. Throws kInvalidArgument for a dim that stands twice.
std::vector<int64_t> folded_dims(std::span<const int64_t> dims, size_t ndim);

}  // namespace hyper_parallel
