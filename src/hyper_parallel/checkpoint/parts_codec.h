#pragma once

// CheckpointParts as bytes for another rank of the same job, and back.

#include <string>
#include <string_view>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

namespace hyper_parallel {

std::string encode_parts(const CheckpointParts& parts);

/// Throws kInternal for bytes that `encode_parts` did not make.
CheckpointParts decode_parts(std::string_view bytes);

}  // namespace hyper_parallel
