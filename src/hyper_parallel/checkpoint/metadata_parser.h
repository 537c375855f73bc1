#pragma once

// The text of `.metadata` as parts that are not checked together yet: what metadata_codec.h says of the syntax.

#include <string_view>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

namespace hyper_parallel {

/// The value of the field "format".
inline constexpr std::string_view kMetadataFormat = "hyper_parallel.checkpoint";

/// Throws kDataLoss for text that is not exactly the format, and kInvalidArgument for chunks that their tensor refuses.
CheckpointParts parse_metadata_parts(std::string_view text);

}  // namespace hyper_parallel
