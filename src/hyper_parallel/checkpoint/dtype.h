#pragma once

// Element types of stored tensors: the closed set that the safetensors format of the stock library 0.8.0 knows.
//
// A type is a width in bits and a name. This layer moves bytes and never interprets an element, so a type that no
// tensor library can compute with (F4, F8_E8M0) is stored and checked like any other.
//
// Three types are narrower than a byte. Their elements are packed, so a tensor of them is storable only if
// elements * bits is a whole number of bytes: F4 (4 elements) takes 2 bytes, F4 (3 elements) is refused.

#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>

namespace hyper_parallel {

/// Declared from the smallest alignment to the largest, in the order of the stock library. Writers place tensors by
/// descending DType (see `arrange_tensors`), so this order decides the bytes of a file: do not reorder.
enum class DType {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// The name that stands in a file. Example: to_string(DType::kF8E4M3) == "F8_E4M3".
std::string_view to_string(DType dtype);

std::ostream& operator<<(std::ostream& out, DType dtype);

/// Bits of one element. A complex number counts both parts: bits_per_element(DType::kC64) == 64.
int64_t bits_per_element(DType dtype);

/// The type of that exact name, or nothing. Example: find_dtype("f32") == std::nullopt, the names are upper case.
std::optional<DType> find_dtype(std::string_view name);

/// The inverse of `to_string`. Throws kInvalidArgument with the list of names for any other text.
DType parse_dtype(std::string_view name);

/// All types, in the order of the enum.
std::span<const DType> all_dtypes();

/// Bytes of a dense tensor. Example: storage_bytes(DType::kF32, {{2, 3}}, "tensor 'w'") == 24.
/// `owner` starts the message. Throws kInvalidArgument if a dim is negative, if the product of the dims (taken from
/// left to right, as the stock library takes it) or the number of bits leaves int64, or if the elements of a sub-byte
/// type do not fill whole bytes.
int64_t storage_bytes(DType dtype, std::span<const int64_t> shape, std::string_view owner);

}  // namespace hyper_parallel
