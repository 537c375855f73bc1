#pragma once

// The ways to compute CRC32C, of which `crc32c` takes the fastest that the processor has.
//
//   state   what the remainder register holds: the checksum before the final xor. Its bit 31 is the coefficient of x^0.
//   A state is linear in the bytes: the state after a ++ b, started at s, is the state after a moved over |b| zero
//   bytes, xor the state after b started at 0. So b may be summed before a is done.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hyper_parallel::crc32c_kernels {

/// The state after the bytes, from the one before them.
using Kernel = uint32_t (*)(uint32_t state, std::span<const std::byte> bytes);

uint32_t portable(uint32_t state, std::span<const std::byte> bytes);

#if defined(__x86_64__)
/// Needs SSE 4.2; by its CRC32 instruction.
uint32_t sse42(uint32_t state, std::span<const std::byte> bytes);
/// Needs AVX-512F, VPCLMULQDQ and SSE 4.2; by carry-less products.
uint32_t avx512(uint32_t state, std::span<const std::byte> bytes);
#endif

/// Those that this processor can run, the fastest first.
std::vector<Kernel> available();

}  // namespace hyper_parallel::crc32c_kernels
