#pragma once

// CheckpointParts as bytes for another rank of the same job, and back.

#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/checkpoint/byte_codec.h"
#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

namespace hyper_parallel {

std::string encode_parts(const CheckpointParts& parts);

/// Throws kInternal for bytes that `encode_parts` did not make.
CheckpointParts decode_parts(std::string_view bytes);

/// Named values within another message: every message that holds some writes them so.
void write_named_values(ByteWriter& out, const std::vector<NamedValue>& values);
std::vector<NamedValue> read_named_values(ByteReader& in);

}  // namespace hyper_parallel
