#pragma once

// Element types: torch's and those that a checkpoint stores.

#include <c10/core/ScalarType.h>

#include <optional>

#include "hyper_parallel/base/dtype.h"

namespace hyper_parallel {

/// The stored type of a torch type; nothing for types that the safetensors format does not know (complex128, complex32,
/// quantized and bit types) or packs otherwise (float4). Example: at::kBFloat16 -> DType::kBF16.
std::optional<DType> stored_dtype(at::ScalarType type);

/// The inverse; nothing for types that torch lacks (F4, F6).
std::optional<at::ScalarType> scalar_type(DType dtype);

/// In what a sum over many cells is kept: float for halves, whose range and digits it may leave, else the type itself.
at::ScalarType wide_dtype(at::ScalarType type);

}  // namespace hyper_parallel
