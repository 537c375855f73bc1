#include "hyper_parallel/checkpoint/snapshot.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/huge_pages.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

// MADV_POPULATE_WRITE of Linux 5.14, for which older C libraries have no name; older systems refuse it.
constexpr int kPopulateWrite = 23;
// Each copy starts a cache line.
constexpr int64_t kCopyAlignment = 64;

int64_t rounded_up(int64_t bytes, int64_t unit) { return checked_mul(ceil_div(bytes, unit), unit); }

class Snapshot final : public SavePlanner {
 public:
  Snapshot(const SavePlan& plan, std::vector<std::vector<std::span<const std::byte>>> copies)
      : plan_(plan), copies_(std::move(copies)) {
    for (size_t number = 0; number < plan_.tensors.size(); ++number)
      by_name_.emplace(plan_.tensors[number].name, number);
  }

  SavePlan build_local_plan() override {
    raise(ErrorCode::kFailedPrecondition, "a snapshot holds the bytes of a plan that is made; it makes none");
  }

  HeldBytes get_data(const WriteItem& item) override {
    // By name and box, not by address: a storage may ask with a copy of the plan.
    const auto found = by_name_.find(item.tensor->name);
    HP_CHECK(found != by_name_.end(), kInvalidArgument, "tensor ", quoted_name(item.tensor->name),
             " is not in the snapshot");
    const std::vector<Box>& boxes = plan_.tensors[found->second].boxes;
    const bool same = item.box < boxes.size() && boxes[item.box] == item.extent();
    const auto box =
        same ? boxes.begin() + static_cast<std::ptrdiff_t>(item.box) : std::ranges::find(boxes, item.extent());
    HP_CHECK(box != boxes.end(), kInvalidArgument, "tensor ", quoted_name(item.tensor->name),
             ": the snapshot has no box ", to_string(item.extent()));
    return {copies_[found->second].at(static_cast<size_t>(box - boxes.begin())), nullptr};
  }

 private:
  const SavePlan& plan_;
  std::vector<std::vector<std::span<const std::byte>>> copies_;  // by tensor and box
  std::unordered_map<std::string_view, size_t> by_name_;
};

int64_t bytes_of(const SavePlan& plan) {
  int64_t total = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    for (size_t box = 0; box < tensor.boxes.size(); ++box) {
      total = checked_add(total, rounded_up(WriteItem{&tensor, box}.bytes(), kCopyAlignment));
    }
  }
  return total;
}

}  // namespace

SnapshotMemory::~SnapshotMemory() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

std::span<std::byte> SnapshotMemory::reserve(int64_t bytes) {
  if (bytes <= static_cast<int64_t>(memory_.size())) return memory_;
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
  memory_ = {};
  const auto size = static_cast<size_t>(rounded_up(bytes, kHugePageBytes));
  void* start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HP_CHECK(start != MAP_FAILED, kFailedPrecondition, "cannot reserve ", size,
           " bytes of memory for a snapshot: ", errno_text(errno));
  memory_ = {static_cast<std::byte*>(start), size};
  // Only wishes: small pages that come one fault at a time do as well, but take several times as long as the copy.
  prefer_huge_pages(memory_);
  ::madvise(start, size, kPopulateWrite);
  return memory_;
}

std::unique_ptr<SavePlanner> take_snapshot(const SavePlan& plan, SavePlanner& planner, SnapshotMemory& memory) {
  std::span<std::byte> free = memory.reserve(bytes_of(plan));
  std::vector<std::vector<std::span<const std::byte>>> copies;
  for (const PlannedTensor& tensor : plan.tensors) {
    auto& of_tensor = copies.emplace_back();
    for (size_t box = 0; box < tensor.boxes.size(); ++box) {
      const WriteItem item{&tensor, box};
      const HeldBytes data = checked_data(planner, item);
      std::memcpy(free.data(), data.bytes.data(), data.bytes.size());
      of_tensor.push_back(free.first(data.bytes.size()));
      free = free.subspan(static_cast<size_t>(rounded_up(item.bytes(), kCopyAlignment)));
    }
  }
  return std::make_unique<Snapshot>(plan, std::move(copies));
}

}  // namespace hyper_parallel
