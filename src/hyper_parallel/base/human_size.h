#pragma once

// Byte counts for people.

#include <array>
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "hyper_parallel/base/text.h"

namespace hyper_parallel {

/// `bytes` >= 0 in the largest binary unit that it fills, with one digit after the point; plain bytes below 1 KiB.
/// Examples: human_size(17) == "17 B", human_size(1536) == "1.5 KiB", human_size(90868376) == "86.7 MiB".
inline std::string human_size(int64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return str_cat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 and more would be shown as 1024.0 of this unit.
  for (; value >= 1023.95 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << value << ' ' << kUnits[unit];
  return std::move(out).str();
}

}  // namespace hyper_parallel
