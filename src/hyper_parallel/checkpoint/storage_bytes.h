#pragma once

// How many bytes a stored tensor takes.
//
// Three element types are narrower than a byte. Their elements are packed, so a tensor of them is storable only if
// elements * bits is a whole number of bytes: F4 (4 elements) takes 2 bytes, F4 (3 elements) is refused.

#include <cstdint>
#include <span>
#include <string_view>

#include "hyper_parallel/base/dtype.h"

namespace hyper_parallel {

/// Bytes of a dense tensor. Example: storage_bytes(DType::kF32, {{2, 3}}, "tensor 'w'") == 24.
/// `owner` starts the message. Throws kInvalidArgument if a dim is negative, if the product of the dims (taken from
/// left to right, as the stock library takes it) or the number of bits leaves int64, or if the elements of a sub-byte
/// type do not fill whole bytes.
int64_t storage_bytes(DType dtype, std::span<const int64_t> shape, std::string_view owner);

}  // namespace hyper_parallel
