#include "hyper_parallel/torch/scalar_dtype.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hyper_parallel {
namespace {

constexpr std::array kTypes = {
    std::pair{at::ScalarType::Bool, DType::kBool},
    std::pair{at::ScalarType::Byte, DType::kU8},
    std::pair{at::ScalarType::Char, DType::kI8},
    std::pair{at::ScalarType::Float8_e5m2, DType::kF8E5M2},
    std::pair{at::ScalarType::Float8_e4m3fn, DType::kF8E4M3},
    std::pair{at::ScalarType::Float8_e8m0fnu, DType::kF8E8M0},
    std::pair{at::ScalarType::Float8_e4m3fnuz, DType::kF8E4M3Fnuz},
    std::pair{at::ScalarType::Float8_e5m2fnuz, DType::kF8E5M2Fnuz},
    std::pair{at::ScalarType::Short, DType::kI16},
    std::pair{at::ScalarType::UInt16, DType::kU16},
    std::pair{at::ScalarType::Half, DType::kF16},
    std::pair{at::ScalarType::BFloat16, DType::kBF16},
    std::pair{at::ScalarType::Int, DType::kI32},
    std::pair{at::ScalarType::UInt32, DType::kU32},
    std::pair{at::ScalarType::Float, DType::kF32},
    std::pair{at::ScalarType::ComplexFloat, DType::kC64},
    std::pair{at::ScalarType::Double, DType::kF64},
    std::pair{at::ScalarType::Long, DType::kI64},
    std::pair{at::ScalarType::UInt64, DType::kU64},
};

}  // namespace

std::optional<DType> stored_dtype(at::ScalarType type) {
  const auto* found = std::ranges::find(kTypes, type, [](const auto& pair) { return pair.first; });
  if (found == kTypes.end()) return std::nullopt;
  return found->second;
}

std::optional<at::ScalarType> scalar_type(DType dtype) {
  const auto* found = std::ranges::find(kTypes, dtype, [](const auto& pair) { return pair.second; });
  if (found == kTypes.end()) return std::nullopt;
  return found->first;
}

at::ScalarType wide_dtype(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

}  // namespace hyper_parallel
