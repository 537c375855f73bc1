// CRC32C by folding (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel,
// 2009), on registers of four lanes.
//
// A lane of 16 bytes is a polynomial L x^64 + H, L its first eight bytes. Moved D bits towards the front of the message
// it is L x^(64+D) + H x^D, and modulo the polynomial of the checksum L (x^(64+D) mod P) + H (x^D mod P), which has
// less than 128 bits again and may be added to the lane that lies there. As the lowest bit of a register is its highest
// power, the product of two words of 64 bits comes out multiplied by x once more: the constants have one x less.

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>

#include "hyper_parallel/checkpoint/crc32c_kernels.h"
#include "hyper_parallel/checkpoint/crc32c_polynomial.h"

namespace hyper_parallel::crc32c_kernels {
namespace {

constexpr size_t kRegisterBytes = 64;
constexpr size_t kRegisters = 4;  // as many products are under way as the processor needs to hide one's latency
constexpr size_t kStrideBytes = kRegisters * kRegisterBytes;

// The two factors for a move over so many bytes, as 64-bit words.
struct Move {
  constexpr explicit Move(size_t bytes)
      : first(word_of(crc32c_polynomial::power_of_x(8 * bytes + 63))),
        second(word_of(crc32c_polynomial::power_of_x(8 * bytes - 1))) {}

  static constexpr uint64_t word_of(uint32_t polynomial) { return static_cast<uint64_t>(polynomial) << 32; }

  uint64_t first;   // for the first eight bytes of a lane
  uint64_t second;  // for the others
};

#define HP_AVX512 __attribute__((target("avx512f,vpclmulqdq,sse4.2")))

HP_AVX512 inline __m512i load(const std::byte* bytes) { return _mm512_loadu_si512(bytes); }

// In each lane.
HP_AVX512 inline __m512i broadcast(Move move) {
  const auto first = static_cast<int64_t>(move.first);
  const auto second = static_cast<int64_t>(move.second);
  return _mm512_set_epi64(second, first, second, first, second, first, second, first);
}

// `lanes` moved, added to `ahead`.
HP_AVX512 inline __m512i fold(__m512i lanes, __m512i move, __m512i ahead) {
  constexpr int kXorOfThree = 0x96;
  const __m512i first = _mm512_clmulepi64_epi128(lanes, move, 0x00);
  const __m512i second = _mm512_clmulepi64_epi128(lanes, move, 0x11);
  return _mm512_ternarylogic_epi64(first, second, ahead, kXorOfThree);
}

// At least kStrideBytes; leaves less than that. Returns the state after what it took.
HP_AVX512 uint32_t fold_strides(uint32_t state, std::span<const std::byte>& bytes) {
  constexpr Move kStride(kStrideBytes);
  constexpr Move kRegister(kRegisterBytes);
  __m512i sums[kRegisters];  // a template would lose the alignment
  for (size_t i = 0; i < kRegisters; ++i) sums[i] = load(bytes.data() + i * kRegisterBytes);
  sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  const __m512i stride = broadcast(kStride);
  for (bytes = bytes.subspan(kStrideBytes); bytes.size() >= kStrideBytes; bytes = bytes.subspan(kStrideBytes)) {
    for (size_t i = 0; i < kRegisters; ++i) sums[i] = fold(sums[i], stride, load(bytes.data() + i * kRegisterBytes));
  }
  const __m512i one = broadcast(kRegister);
  for (size_t i = 1; i < kRegisters; ++i) sums[i] = fold(sums[i - 1], one, sums[i]);
  alignas(kRegisterBytes) std::array<std::byte, kRegisterBytes> rest;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  _mm512_store_si512(rest.data(), sums[kRegisters - 1]);
  return sse42(0, rest);
}

#undef HP_AVX512

}  // namespace

uint32_t avx512(uint32_t state, std::span<const std::byte> bytes) {
  if (bytes.size() >= kStrideBytes) state = fold_strides(state, bytes);
  return sse42(state, bytes);
}

}  // namespace hyper_parallel::crc32c_kernels

#endif
