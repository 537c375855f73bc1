#include "hyper_parallel/checkpoint/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace hyper_parallel {

void prefer_huge_pages(std::span<std::byte> bytes) noexcept {
  constexpr auto kPage = static_cast<uintptr_t>(kHugePageBytes);
  if (bytes.size() < kPage / 2) return;
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = address / kPage * kPage;
  const uintptr_t end = (address + bytes.size() + kPage - 1) / kPage * kPage;
  // What is not mapped there is passed over.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of no object, which the compiler learns nothing from.
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace hyper_parallel
