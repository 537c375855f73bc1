#pragma once

// Byte counts for people.

#include <cstdint>
#include <string>

namespace hyper_parallel {

/// `bytes` >= 0 in the largest binary unit that it fills, with one digit after the point; plain bytes below 1 KiB.
/// Examples: human_size(17) == "17 B", human_size(1536) == "1.5 KiB", human_size(90868376) == "86.7 MiB".
std::string human_size(int64_t bytes);

}  // namespace hyper_parallel
