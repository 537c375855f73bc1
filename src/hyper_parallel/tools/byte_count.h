#pragma once

// Byte counts as people type them.

#include <cstdint>
#include <string_view>

namespace hyper_parallel {

/// A count with a unit: "4096", "512 B", "256MiB", "5GB", "1.5GiB". KB, MB, GB and TB count thousands, KiB, MiB, GiB
/// and TiB 1024s; case does not matter. Throws kInvalidArgument for other text, for 0 and for what leaves int64.
int64_t parse_byte_count(std::string_view text);

}  // namespace hyper_parallel
