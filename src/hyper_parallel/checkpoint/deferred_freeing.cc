#include "hyper_parallel/checkpoint/deferred_freeing.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>

#include <exception>
#include <optional>
#include <thread>
#include <utility>

namespace hyper_parallel {
namespace {

constexpr size_t kPageBytes = 1;  // the system rounds up
constexpr int64_t kLargeBytes = int64_t{1} << 20;
constexpr size_t kMostHeld = 4096;  // the system allows a process 65530 mappings

bool hides_removed_files(int descriptor) {
  constexpr decltype(statfs::f_type) kXfsMagic = 0x58465342;  // named in the library of XFS only
  struct statfs system{};
  if (::fstatfs(descriptor, &system) != 0) return false;
  switch (system.f_type) {
    case EXT4_SUPER_MAGIC:
    case kXfsMagic:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
      return true;
    default:
      return false;
  }
}

// A mapping that keeps the file, or null.
void* hold(const FileDescriptor& file) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || status.st_size < kLargeBytes) return nullptr;
  if (!hides_removed_files(file.get())) return nullptr;
  void* page = ::mmap(nullptr, kPageBytes, PROT_NONE, MAP_SHARED, file.get(), 0);
  if (page == MAP_FAILED) return nullptr;
  ::madvise(page, kPageBytes, MADV_DONTFORK);
  return page;
}

void release(const std::vector<void*>& pages) {
  for (void* page : pages) ::munmap(page, kPageBytes);
}

}  // namespace

DeferredFreeing::~DeferredFreeing() {
  if (pages_.empty()) return;
  try {
    // Detached: it touches nothing but its own list, and the end of the process frees the rest.
    std::thread([pages = pages_] { release(pages); }).detach();
  } catch (const std::exception&) {
    release(pages_);
  }
}

bool DeferredFreeing::remove(const Directory& directory, const std::string& name) noexcept {
  try {
    if (pages_.size() < kMostHeld) {
      pages_.reserve(pages_.size() + 1);
      const std::optional<FileDescriptor> file = directory.open_regular(name, O_RDONLY);
      void* page = file.has_value() ? hold(*file) : nullptr;
      if (page != nullptr) pages_.push_back(page);
    }
  } catch (const std::exception&) {
    // What cannot be held is freed at once.
  }
  return directory.remove(name);
}

}  // namespace hyper_parallel
