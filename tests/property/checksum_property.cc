// The checksum by each kernel that the processor can run against the portable one.

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/crc32c_kernels.h"
#include "tests/property/property.h"

namespace hyper_parallel::test {
namespace {

TEST(Checksum, OfAnyBytesAtAnyAddress_IsThatOfThePortableKernel_WhereverItIsCut) {
  std::mt19937_64 random(current_test_seed());
  std::vector<std::byte> bytes(100'000);
  std::ranges::generate(bytes, [&random] { return static_cast<std::byte>(random() & 0xFF); });
  check_property(500, [&bytes] {
    const auto size = *drawn([] { return static_cast<size_t>(draw(0, draw_chance(50) ? 90'000 : 900)); });
    const auto begin = *drawn([] { return static_cast<size_t>(draw(0, 63)); });
    const auto cut = *drawn([size] { return draw_index(size + 1); });
    const auto part = std::span<const std::byte>(bytes).subspan(begin, size);
    const uint32_t state = crc32c_kernels::portable(~uint32_t{0}, part);
    RC_ASSERT(crc32c(part) == ~state);
    for (const auto kernel : crc32c_kernels::available()) {
      RC_ASSERT(kernel(~uint32_t{0}, part) == state);
      RC_ASSERT(kernel(kernel(~uint32_t{0}, part.first(cut)), part.subspan(cut)) == state);
    }
  });
}

}  // namespace
}  // namespace hyper_parallel::test
