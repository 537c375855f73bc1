#include "hyper_parallel/tools/element_difference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/float16.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kBitsPerByte = 8;

template <typename Bits, typename Decode>
void add_floats(std::span<const std::byte> a, std::span<const std::byte> b, const Decode& decode,
                ElementDifference& difference) {
  for (size_t at = 0; at < a.size(); at += sizeof(Bits)) {
    Bits left{};
    Bits right{};
    std::memcpy(&left, a.data() + at, sizeof(Bits));
    std::memcpy(&right, b.data() + at, sizeof(Bits));
    if (left == right) continue;
    ++difference.elements;
    const double distance = std::abs(static_cast<double>(decode(left)) - static_cast<double>(decode(right)));
    if (std::isnan(distance)) {
      ++difference.undefined;
    } else {
      difference.largest = std::max(difference.largest, distance);
    }
  }
}

/// Elements of a whole number of bytes.
void count_bytewise(size_t width, std::span<const std::byte> a, std::span<const std::byte> b,
                    ElementDifference& difference) {
  for (size_t at = 0; at < a.size(); at += width) {
    if (std::memcmp(a.data() + at, b.data() + at, width) != 0) ++difference.elements;
  }
}

/// Elements that share bytes, packed from the lowest bit up.
void count_bitwise(int64_t bits, std::span<const std::byte> a, std::span<const std::byte> b,
                   ElementDifference& difference) {
  const auto elements = static_cast<int64_t>(a.size()) * kBitsPerByte / bits;
  const auto differs_at = [&](int64_t bit) {
    const auto byte = static_cast<size_t>(bit / kBitsPerByte);
    return ((std::to_integer<int>(a[byte] ^ b[byte]) >> (bit % kBitsPerByte)) & 1) != 0;
  };
  for (int64_t i = 0; i < elements; ++i) {
    bool differs = false;
    for (int64_t bit = i * bits; bit < (i + 1) * bits; ++bit) differs = differs || differs_at(bit);
    if (differs) ++difference.elements;
  }
}

}  // namespace

bool has_distance(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

void add_difference(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b,
                    ElementDifference& difference) {
  HP_DCHECK(a.size() == b.size());
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0) return;
  if (dtype == DType::kF64) {
    add_floats<uint64_t>(a, b, [](uint64_t bits) { return std::bit_cast<double>(bits); }, difference);
  } else if (dtype == DType::kF32) {
    add_floats<uint32_t>(a, b, [](uint32_t bits) { return std::bit_cast<float>(bits); }, difference);
  } else if (dtype == DType::kF16) {
    add_floats<uint16_t>(a, b, float_from_float16, difference);
  } else if (dtype == DType::kBF16) {
    add_floats<uint16_t>(a, b, float_from_bfloat16, difference);
  } else if (const int64_t bits = bits_per_element(dtype); bits % kBitsPerByte == 0) {
    count_bytewise(static_cast<size_t>(bits / kBitsPerByte), a, b, difference);
  } else {
    count_bitwise(bits, a, b, difference);
  }
}

}  // namespace hyper_parallel
