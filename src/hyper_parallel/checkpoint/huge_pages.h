#pragma once

// Memory in huge pages: a wish, which the system may leave unheard. Fresh memory that comes in small pages, one fault
// at a time, takes longer to fault in than to fill.

#include <cstddef>
#include <cstdint>
#include <span>

namespace hyper_parallel {

inline constexpr int64_t kHugePageBytes = int64_t{1} << 21;

/// Asks for huge pages under `bytes`, unless they are fewer than half of one, wherever these are not there yet. Also
/// for those at the ends, which may reach over neighbouring memory: boxes that lie side by side fill them together.
/// Changes no value.
void prefer_huge_pages(std::span<std::byte> bytes) noexcept;

}  // namespace hyper_parallel
