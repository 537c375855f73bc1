#include "hyper_parallel/checkpoint/crc32c.h"

#include <iomanip>
#include <sstream>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/crc32c_kernels.h"

namespace hyper_parallel {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  static const crc32c_kernels::Kernel kernel = crc32c_kernels::available().front();
  return ~kernel(~before, bytes);
}

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
