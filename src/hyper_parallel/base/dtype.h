#pragma once

// Element types of tensors: the closed set that the safetensors format of the stock library 0.8.0 knows.
//
// A type is a width in bits and a name. A type that no tensor library can compute with (F4, F8_E8M0) is moved, stored
// and checked like any other.

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

}  // namespace hyper_parallel
