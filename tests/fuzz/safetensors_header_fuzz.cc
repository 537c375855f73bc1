// Any bytes are either refused as kDataLoss or give a header that survives being written and read again.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/safetensors_codec.h"

namespace {

using namespace hyper_parallel;

std::optional<SafetensorsHeader> parse(std::span<const std::byte> file) {
  try {
    return parse_safetensors_header(file, static_cast<int64_t>(file.size()), "fuzzed file");
  } catch (const Error& error) {
    HP_DCHECK(error.code() == ErrorCode::kDataLoss);
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::optional<SafetensorsHeader> header = parse(std::as_bytes(std::span(data, size)));
  if (!header.has_value()) return 0;
  const std::string again = write_safetensors_header(*header);
  const int64_t file_size = static_cast<int64_t>(again.size()) + header->data_size();
  HP_DCHECK(parse_safetensors_header(std::as_bytes(std::span(again)), file_size, "written file") == *header);
  return 0;
}
