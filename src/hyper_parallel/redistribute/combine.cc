#include "hyper_parallel/redistribute/combine.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/float16.h"

namespace hyper_parallel {
namespace {

/// All terms of so many bytes are combined before the next ones, so that the output stays in the cache.
constexpr size_t kChunkBytes = size_t{16} << 10;

/// How an element lies in memory and what is computed with. Value is the type of one addition.
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
  static Value divide(Value value, int64_t divisor) { return static_cast<T>(value / static_cast<T>(divisor)); }
};

struct Float16 {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) { return float_from_float16(stored); }
  static Stored store(Value value) { return float16_from_float(value); }
  static Value divide(Value value, int64_t divisor) { return value / static_cast<float>(divisor); }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) { return float_from_bfloat16(stored); }
  static Stored store(Value value) { return bfloat16_from_float(value); }
  static Value divide(Value value, int64_t divisor) { return value / static_cast<float>(divisor); }
};

/// One part of a complex number. Division by a real number multiplies both parts by its inverse, as torch's does.
struct ComplexPart : Plain<float> {
  static float divide(float value, int64_t divisor) { return value * (1.0F / static_cast<float>(divisor)); }
};

struct Sum {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

struct Max {
  template <typename T>
  static T of(T a, T b) {
    return a >= b || a != a ? a : b;
  }
};

struct Min {
  template <typename T>
  static T of(T a, T b) {
    return a <= b || a != a ? a : b;
  }
};

template <typename Stored>
Stored read(const std::byte* from) {
  Stored stored{};
  std::memcpy(&stored, from, sizeof(Stored));
  return stored;
}

/// output = output (op) term, element by element.
template <typename Number, typename Op>
void combine_into(std::span<std::byte> output, const std::byte* term) {
  using Stored = typename Number::Stored;
  for (size_t at = 0; at < output.size(); at += sizeof(Stored)) {
    const auto left = Number::load(read<Stored>(output.data() + at));
    const auto right = Number::load(read<Stored>(term + at));
    const Stored result = Number::store(Op::of(left, right));
    std::memcpy(output.data() + at, &result, sizeof(Stored));
  }
}

template <typename Number>
void divide(std::span<std::byte> output, int64_t divisor) {
  using Stored = typename Number::Stored;
  for (size_t at = 0; at < output.size(); at += sizeof(Stored)) {
    const Stored result = Number::store(Number::divide(Number::load(read<Stored>(output.data() + at)), divisor));
    std::memcpy(output.data() + at, &result, sizeof(Stored));
  }
}

template <typename Number, typename Op>
void combine_in_chunks(std::span<const std::span<const std::byte>> terms, int64_t divisor,
                       std::span<std::byte> output) {
  for (size_t at = 0; at < output.size(); at += kChunkBytes) {
    const std::span<std::byte> chunk = output.subspan(at, std::min(kChunkBytes, output.size() - at));
    std::memcpy(chunk.data(), terms.front().data() + at, chunk.size());
    for (const std::span<const std::byte> term : terms.subspan(1)) {
      combine_into<Number, Op>(chunk, term.data() + at);
    }
    if (divisor != 1) divide<Number>(chunk, divisor);
  }
}

/// Calls `visit(number)` with the arithmetic of `dtype`, one that has a sum.
template <typename Visit>
void visit_number(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kU8:
      return visit(Plain<uint8_t>{});
    case DType::kI8:
      return visit(Plain<int8_t>{});
    case DType::kI16:
      return visit(Plain<int16_t>{});
    case DType::kU16:
      return visit(Plain<uint16_t>{});
    case DType::kF16:
      return visit(Float16{});
    case DType::kBF16:
      return visit(BFloat16{});
    case DType::kI32:
      return visit(Plain<int32_t>{});
    case DType::kU32:
      return visit(Plain<uint32_t>{});
    case DType::kF32:
      return visit(Plain<float>{});
    case DType::kC64:
      return visit(ComplexPart{});
    case DType::kF64:
      return visit(Plain<double>{});
    case DType::kI64:
      return visit(Plain<int64_t>{});
    case DType::kU64:
      return visit(Plain<uint64_t>{});
    case DType::kBool:
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
      break;
  }
  raise(ErrorCode::kInternal, dtype, " has no arithmetic");
}

/// Nothing for a type that has no arithmetic here.
std::optional<NumberKind> kind_of(DType dtype) {
  if (dtype == DType::kBool) return NumberKind::kBool;
  if (dtype == DType::kC64) return NumberKind::kComplex;
  const std::string_view name = to_string(dtype);
  if (name.starts_with("I") || name.starts_with("U")) return NumberKind::kInteger;
  if (dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) {
    return NumberKind::kReal;
  }
  return std::nullopt;
}

/// An average is a sum, divided.
std::string_view reduction_name(ReduceOp op) { return to_string(op == ReduceOp::kAvg ? ReduceOp::kSum : op); }

void check_sizes(const Combine& combine, DType dtype, std::span<const std::span<const std::byte>> terms,
                 size_t output_bytes) {
  HP_CHECK(!terms.empty() && terms.size() == combine.sources.size(), kInvalidArgument, "there are ", terms.size(),
           " terms but ", combine.sources.size(), " members of the group");
  for (const std::span<const std::byte> term : terms) {
    HP_CHECK(term.size() == output_bytes, kInvalidArgument, "a term has ", term.size(), " bytes but the result ",
             output_bytes);
  }
  const auto item_bytes = static_cast<size_t>(bits_per_element(dtype) / 8);
  HP_CHECK(output_bytes % item_bytes == 0, kInvalidArgument, "the result has ", output_bytes,
           " bytes, which are no whole elements of ", dtype);
}

}  // namespace

void check_reducible(std::string_view operation, NumberKind kind, std::string_view dtype, ReduceOp op) {
  HP_CHECK(kind != NumberKind::kBool, kType, operation, ": the input is bool, which has no ", reduction_name(op));
  HP_CHECK(kind != NumberKind::kComplex || (op != ReduceOp::kMax && op != ReduceOp::kMin), kType, operation,
           ": the input is complex, which has no ", reduction_name(op));
  HP_CHECK(kind != NumberKind::kInteger || op != ReduceOp::kAvg, kType, operation, ": Partial(avg) of ", dtype,
           " has no exact value");
}

void check_reducible(std::string_view operation, DType dtype, ReduceOp op) {
  const std::optional<NumberKind> kind = kind_of(dtype);
  HP_CHECK(kind.has_value(), kType, operation, ": the input is ", dtype, ", which has no ", reduction_name(op));
  check_reducible(operation, *kind, to_string(dtype), op);
}

void combine_terms(const Combine& combine, DType dtype, std::span<const std::span<const std::byte>> terms,
                   std::span<std::byte> output) {
  check_reducible("redistribute", dtype, combine.op);
  check_sizes(combine, dtype, terms, output.size());
  visit_number(dtype, [&]<typename Number>(Number) {
    switch (combine.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        return combine_in_chunks<Number, Sum>(terms, combine.divisor, output);
      case ReduceOp::kMax:
        return combine_in_chunks<Number, Max>(terms, combine.divisor, output);
      case ReduceOp::kMin:
        return combine_in_chunks<Number, Min>(terms, combine.divisor, output);
    }
    raise(ErrorCode::kInternal, "unknown reduce op");
  });
}

}  // namespace hyper_parallel
