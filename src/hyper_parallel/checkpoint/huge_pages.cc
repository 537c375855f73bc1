#include "hyper_parallel/checkpoint/huge_pages.h"

#include <sys/mman.h>

#include <memory>

namespace hyper_parallel {

void prefer_huge_pages(std::span<std::byte> bytes) noexcept {
  void* begin = bytes.data();
  size_t size = bytes.size();
  const auto page = static_cast<size_t>(kHugePageBytes);
  if (std::align(page, page, begin, size) == nullptr) return;
  ::madvise(begin, size / page * page, MADV_HUGEPAGE);
}

}  // namespace hyper_parallel
