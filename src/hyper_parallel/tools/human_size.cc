#include "hyper_parallel/tools/human_size.h"

#include <array>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "hyper_parallel/base/text.h"

namespace hyper_parallel {

std::string human_size(int64_t bytes) {
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
