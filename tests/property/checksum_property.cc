// The checksum by the processor's instruction against the portable one.

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "hyper_parallel/checkpoint/crc32c.h"
#include "tests/property/property.h"

namespace hyper_parallel::test {
namespace {

TEST(Checksum, OfAnyBytesAtAnyAddress_IsThatOfThePortableCode_WhereverItIsCut) {
  std::mt19937_64 random(current_test_seed());
  std::vector<std::byte> bytes(100'000);
  std::ranges::generate(bytes, [&random] { return static_cast<std::byte>(random() & 0xFF); });
  check_property(500, [&bytes] {
    const auto size = *drawn([] { return static_cast<size_t>(draw(0, draw_chance(50) ? 90'000 : 900)); });
    const auto begin = *drawn([] { return static_cast<size_t>(draw(0, 63)); });
    const auto cut = *drawn([size] { return draw_index(size + 1); });
    const auto part = std::span<const std::byte>(bytes).subspan(begin, size);
    const uint32_t checksum = crc32c_portable(part);
    RC_ASSERT(crc32c(part) == checksum);
    RC_ASSERT(crc32c(part.subspan(cut), crc32c(part.first(cut))) == checksum);
  });
}

}  // namespace
}  // namespace hyper_parallel::test
