#include "hyper_parallel/checkpoint/crc32c_kernels.h"

#include <array>
#include <bit>
#include <cstring>

#include "hyper_parallel/checkpoint/crc32c_polynomial.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hyper_parallel::crc32c_kernels {
namespace {

using Table = std::array<uint32_t, 256>;

// [k][b]: the state b, moved over k + 1 zero bytes.
constexpr std::array<Table, 8> make_slices() {
  std::array<Table, 8> slices{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = crc32c_polynomial::times_x(state);
    slices[0][byte] = state;
  }
  for (size_t k = 1; k < slices.size(); ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = slices[k - 1][byte];
      slices[k][byte] = (before >> 8) ^ slices[0][before & 0xFF];
    }
  }
  return slices;
}

constexpr std::array<Table, 8> kSlices = make_slices();

uint64_t load_little_endian(const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

uint32_t portable_byte(uint32_t state, std::byte byte) {
  return (state >> 8) ^ kSlices[0][(state ^ std::to_integer<uint32_t>(byte)) & 0xFF];
}

}  // namespace

uint32_t portable(uint32_t state, std::span<const std::byte> bytes) {
  while (bytes.size() >= 8) {
    const uint64_t word = load_little_endian(bytes.data()) ^ state;
    state = kSlices[7][word & 0xFF] ^ kSlices[6][(word >> 8) & 0xFF] ^ kSlices[5][(word >> 16) & 0xFF] ^
            kSlices[4][(word >> 24) & 0xFF] ^ kSlices[3][(word >> 32) & 0xFF] ^ kSlices[2][(word >> 40) & 0xFF] ^
            kSlices[1][(word >> 48) & 0xFF] ^ kSlices[0][word >> 56];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) state = portable_byte(state, byte);
  return state;
}

#if defined(__x86_64__)

namespace {

// Moves a state over a fixed number of zero bytes, by one table for each of its bytes.
class Shift {
 public:
  constexpr explicit Shift(size_t zero_bytes) {
    const uint32_t power = crc32c_polynomial::power_of_x(8 * zero_bytes);
    for (uint32_t bit = 0; bit < 32; ++bit) {
      const uint32_t moved = crc32c_polynomial::multiply(uint32_t{1} << bit, power);
      Table& table = tables_[bit / 8];
      const uint32_t weight = uint32_t{1} << (bit % 8);
      for (uint32_t low = 0; low < weight; ++low) table[weight + low] = table[low] ^ moved;
    }
  }

  constexpr uint32_t operator()(uint32_t state) const {
    return tables_[0][state & 0xFF] ^ tables_[1][(state >> 8) & 0xFF] ^ tables_[2][(state >> 16) & 0xFF] ^
           tables_[3][state >> 24];
  }

 private:
  std::array<Table, 4> tables_{};
};

__attribute__((target("sse4.2"))) inline uint64_t add_word(uint64_t state, const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return _mm_crc32_u64(state, word);
}

// The instruction takes three cycles but one may start in each: three stretches of `stretch` bytes are summed side by
// side and then joined.
template <size_t stretch>
__attribute__((target("sse4.2"))) uint32_t add_triples(uint32_t state, std::span<const std::byte>& bytes) {
  static_assert(stretch % 8 == 0);
  static constexpr Shift kShift(stretch);
  while (bytes.size() >= 3 * stretch) {
    const std::byte* at = bytes.data();
    uint64_t first = state;
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < stretch; i += 8) {
      first = add_word(first, at + i);
      second = add_word(second, at + stretch + i);
      third = add_word(third, at + 2 * stretch + i);
    }
    state = kShift(kShift(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second)) ^ static_cast<uint32_t>(third);
    bytes = bytes.subspan(3 * stretch);
  }
  return state;
}

}  // namespace

__attribute__((target("sse4.2"))) uint32_t sse42(uint32_t state, std::span<const std::byte> bytes) {
  state = add_triples<4096>(state, bytes);
  state = add_triples<256>(state, bytes);
  uint64_t wide = state;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) wide = add_word(wide, bytes.data());
  state = static_cast<uint32_t>(wide);
  for (const std::byte byte : bytes) state = _mm_crc32_u8(state, std::to_integer<uint8_t>(byte));
  return state;
}

#endif

std::vector<Kernel> available() {
  std::vector<Kernel> kernels;
#if defined(__x86_64__)
  const bool counts = __builtin_cpu_supports("sse4.2") != 0;
  if (counts && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) kernels.push_back(avx512);
  if (counts) kernels.push_back(sse42);
#endif
  kernels.push_back(portable);
  return kernels;
}

}  // namespace hyper_parallel::crc32c_kernels
