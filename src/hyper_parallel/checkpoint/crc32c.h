#pragma once

// CRC32C (Castagnoli; RFC 3720 appendix B.4): reflected polynomial 0x82F63B78, initial value and final xor ~0.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hyper_parallel {

/// The checksum of `bytes`, behind bytes whose checksum is `before`: crc32c(ab) == crc32c(b, crc32c(a)).
/// By the fastest of crc32c_kernels.h. Example: crc32c("123456789") == 0xE3069283.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

/// As messages show it: "0x00c0ffee".
std::string checksum_text(uint32_t checksum);

/// Of each block of kBlockBytes of a chunk.
std::vector<uint32_t> block_checksums(std::span<const std::byte> chunk);

}  // namespace hyper_parallel
