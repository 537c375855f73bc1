#include "hyper_parallel/base/dtype.h"

#include <algorithm>
#include <array>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t bits;
};

constexpr std::array kDTypes = {
    DTypeInfo{DType::kBool, "BOOL", 8},
    DTypeInfo{DType::kF4, "F4", 4},
    DTypeInfo{DType::kF6E2M3, "F6_E2M3", 6},
    DTypeInfo{DType::kF6E3M2, "F6_E3M2", 6},
    DTypeInfo{DType::kU8, "U8", 8},
    DTypeInfo{DType::kI8, "I8", 8},
    DTypeInfo{DType::kF8E5M2, "F8_E5M2", 8},
    DTypeInfo{DType::kF8E4M3, "F8_E4M3", 8},
    DTypeInfo{DType::kF8E8M0, "F8_E8M0", 8},
    DTypeInfo{DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    DTypeInfo{DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    DTypeInfo{DType::kI16, "I16", 16},
    DTypeInfo{DType::kU16, "U16", 16},
    DTypeInfo{DType::kF16, "F16", 16},
    DTypeInfo{DType::kBF16, "BF16", 16},
    DTypeInfo{DType::kI32, "I32", 32},
    DTypeInfo{DType::kU32, "U32", 32},
    DTypeInfo{DType::kF32, "F32", 32},
    DTypeInfo{DType::kC64, "C64", 64},
    DTypeInfo{DType::kF64, "F64", 64},
    DTypeInfo{DType::kI64, "I64", 64},
    DTypeInfo{DType::kU64, "U64", 64},
};

constexpr bool rows_follow_the_enum() {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_follow_the_enum() && kDTypes.back().dtype == DType::kU64);

constexpr auto kAllDTypes = [] {
  std::array<DType, kDTypes.size()> all{};
  std::ranges::transform(kDTypes, all.begin(), &DTypeInfo::dtype);
  return all;
}();

const DTypeInfo& info(DType dtype) {
  const auto row = static_cast<size_t>(dtype);
  HP_DCHECK(row < kDTypes.size());
  return kDTypes[row];
}

}  // namespace

std::string_view to_string(DType dtype) { return info(dtype).name; }

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

int64_t bits_per_element(DType dtype) { return info(dtype).bits; }

std::optional<DType> find_dtype(std::string_view name) {
  const auto* row = std::ranges::find(kDTypes, name, &DTypeInfo::name);
  return row == kDTypes.end() ? std::nullopt : std::optional(row->dtype);
}

DType parse_dtype(std::string_view name) {
  const std::optional<DType> dtype = find_dtype(name);
  HP_CHECK(dtype.has_value(), kInvalidArgument, "dtype '", name, "' is not one of ", join(kAllDTypes, ", "));
  return *dtype;
}

std::span<const DType> all_dtypes() { return kAllDTypes; }

}  // namespace hyper_parallel
