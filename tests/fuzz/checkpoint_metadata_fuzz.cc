// Any bytes are either refused as kDataLoss or give metadata that survive being written and read again.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"

namespace {

using namespace hyper_parallel;

std::optional<CheckpointMetadata> parse(std::span<const std::byte> text) {
  try {
    return parse_metadata(text, "fuzzed text");
  } catch (const Error& error) {
    HP_DCHECK(error.code() == ErrorCode::kDataLoss);
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = std::as_bytes(std::span(data, size));
  const std::optional<CheckpointMetadata> metadata = parse(text);
  if (!metadata.has_value()) return 0;
  HP_DCHECK(looks_like_metadata(text));
  const std::string again = write_metadata(*metadata);
  HP_DCHECK(parse_metadata(std::as_bytes(std::span(again)), "written text") == *metadata);
  return 0;
}
