#include "hyper_parallel/tools/byte_count.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

struct Unit {
  std::string_view name;
  int64_t bytes;
};

constexpr int64_t kThousand = 1000;
constexpr int64_t kKibi = 1024;
constexpr std::array kUnits = {
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"kb", kThousand},
    Unit{"mb", kThousand* kThousand},
    Unit{"gb", kThousand* kThousand* kThousand},
    Unit{"tb", kThousand* kThousand* kThousand* kThousand},
    Unit{"kib", kKibi},
    Unit{"mib", kKibi* kKibi},
    Unit{"gib", kKibi* kKibi* kKibi},
    Unit{"tib", kKibi* kKibi* kKibi* kKibi},
};

std::optional<int64_t> unit_bytes(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  std::string name(text);
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto* unit = std::ranges::find(kUnits, name, &Unit::name);
  return unit == kUnits.end() ? std::nullopt : std::optional(unit->bytes);
}

}  // namespace

int64_t parse_byte_count(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const auto unit = unit_bytes(text.substr(static_cast<size_t>(end - text.data())));
  HP_CHECK(status == std::errc{} && unit && std::isfinite(number), kInvalidArgument, quoted_name(text),
           " is not a byte count; write one as 256MiB, 5GB or 4096");
  const double bytes = number * static_cast<double>(*unit);
  constexpr double kLimit = 9.2e18;  // below 2^63
  HP_CHECK(bytes >= 1 && bytes < kLimit, kInvalidArgument, quoted_name(text),
           " is out of range; a byte count is at least 1 and fits in int64");
  return static_cast<int64_t>(bytes);
}

}  // namespace hyper_parallel
