#include "hyper_parallel/checkpoint/crc32c.h"

#include <array>
#include <bit>
#include <cstring>
#include <iomanip>
#include <sstream>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace hyper_parallel {
namespace {

// Definitions
//   state   what the remainder register holds: the checksum before the final xor. Its bit 31 is the coefficient of x^0.
//   A state is linear in the bytes: the state after a ++ b, started at s, is the state after a moved over |b| zero
//   bytes, xor the state after b started at 0. So b may be summed before a is done.

constexpr uint32_t kPolynomial = 0x82F63B78;

using Table = std::array<uint32_t, 256>;

// One zero bit further.
constexpr uint32_t step(uint32_t state) { return (state >> 1) ^ ((state & 1) != 0 ? kPolynomial : 0); }

// [k][b]: the state b, moved over k + 1 zero bytes.
constexpr std::array<Table, 8> make_slices() {
  std::array<Table, 8> slices{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = step(state);
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

uint32_t portable_state(uint32_t state, std::span<const std::byte> bytes) {
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

// Moves a state over a fixed number of zero bytes, by one table for each of its bytes.
class Shift {
 public:
  constexpr explicit Shift(size_t zero_bytes) {
    for (uint32_t bit = 0; bit < 32; ++bit) {
      const uint32_t moved = move_by_square(uint32_t{1} << bit, zero_bytes);
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
  // The product of two polynomials, modulo the one of the checksum.
  static constexpr uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
      if ((a & bit) != 0) product ^= b;
      b = step(b);
    }
    return product;
  }

  // state * x^(8 * zero_bytes)
  static constexpr uint32_t move_by_square(uint32_t state, size_t zero_bytes) {
    uint32_t power = uint32_t{1} << 23;  // x^8
    for (; zero_bytes != 0; zero_bytes >>= 1) {
      if ((zero_bytes & 1) != 0) state = multiply(state, power);
      power = multiply(power, power);
    }
    return state;
  }

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

__attribute__((target("sse4.2"))) uint32_t sse42_state(uint32_t state, std::span<const std::byte> bytes) {
  state = add_triples<4096>(state, bytes);
  state = add_triples<256>(state, bytes);
  uint64_t wide = state;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) wide = add_word(wide, bytes.data());
  state = static_cast<uint32_t>(wide);
  for (const std::byte byte : bytes) state = _mm_crc32_u8(state, std::to_integer<uint8_t>(byte));
  return state;
}

using StateFunction = uint32_t (*)(uint32_t, std::span<const std::byte>);

uint32_t fastest_state(uint32_t state, std::span<const std::byte> bytes) {
  static const StateFunction function = __builtin_cpu_supports("sse4.2") ? sse42_state : portable_state;
  return function(state, bytes);
}

#else

uint32_t fastest_state(uint32_t state, std::span<const std::byte> bytes) { return portable_state(state, bytes); }

#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) { return ~fastest_state(~before, bytes); }

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before) { return ~portable_state(~before, bytes); }

std::string checksum_text(uint32_t checksum) {
  std::ostringstream out;
  out << "0x" << std::hex << std::setw(8) << std::setfill('0') << checksum;
  return std::move(out).str();
}

std::vector<uint32_t> block_checksums(std::span<const std::byte> chunk) {
  std::vector<uint32_t> checksums;
  checksums.reserve(static_cast<size_t>(block_count(static_cast<int64_t>(chunk.size()))));
  constexpr auto kBlock = static_cast<size_t>(kBlockBytes);
  for (; chunk.size() > kBlock; chunk = chunk.subspan(kBlock)) checksums.push_back(crc32c(chunk.first(kBlock)));
  if (!chunk.empty()) checksums.push_back(crc32c(chunk));
  return checksums;
}

}  // namespace hyper_parallel
