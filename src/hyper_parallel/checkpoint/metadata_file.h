#pragma once

// The file `.metadata` in its directory, as text.

#include <optional>
#include <string>

#include "hyper_parallel/checkpoint/directory.h"

namespace hyper_parallel {

/// The text, or nothing if there is no such file. Throws kDataLoss if it is no regular file, is larger than
/// kMaxMetadataBytes or cannot be read.
std::optional<std::string> read_metadata_file(const Directory& directory);

}  // namespace hyper_parallel
