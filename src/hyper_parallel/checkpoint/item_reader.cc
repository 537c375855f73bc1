#include "hyper_parallel/checkpoint/item_reader.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/huge_pages.h"
#include "hyper_parallel/checkpoint/parallel_reader.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

// An item of the plan, its chunk found and its fit checked.
struct LocatedItem {
  const ReadItem* item = nullptr;
  int64_t file = 0;
  int64_t begin = 0;

  friend bool operator<(const LocatedItem& a, const LocatedItem& b) {
    return std::tie(a.file, a.begin, a.item) < std::tie(b.file, b.begin, b.item);
  }
  bool is_of_chunk_of(const LocatedItem& other) const {
    return item->tensor == other.item->tensor && item->chunk == other.item->chunk;
  }
};

const StoredTensor& tensor_of(const CheckpointMetadata& metadata, const ReadItem& item) {
  const auto count = static_cast<int64_t>(metadata.tensors().size());
  HP_CHECK(item.tensor >= 0 && item.tensor < count, kInvalidArgument, "a read item names tensor ", item.tensor,
           ", but the metadata has ", count);
  return metadata.tensors()[static_cast<size_t>(item.tensor)];
}

LocatedItem locate(const CheckpointMetadata& metadata, const ReadItem& item) {
  const StoredTensor& tensor = tensor_of(metadata, item);
  HP_CHECK(item.chunk >= 0 && item.chunk < tensor.chunk_count(), kInvalidArgument, "a read item names chunk ",
           item.chunk, " of tensor ", quoted_name(tensor.name()), ", which has ", tensor.chunk_count());
  const StoredChunk chunk = tensor.chunk(item.chunk);
  const bool fits = item.overlap.ndim() == chunk.box.ndim() && !item.overlap.empty() &&
                    intersect(item.overlap, chunk.box) == item.overlap;
  HP_CHECK(fits, kInvalidArgument, "a read item wants cells ", to_string(item.overlap), " of tensor ",
           quoted_name(tensor.name()), ", which are not all in its chunk ", to_string(chunk.box));
  return {&item, chunk.file, chunk.begin};
}

std::vector<LocatedItem> in_disk_order(const CheckpointMetadata& metadata, const LoadPlan& plan) {
  std::vector<LocatedItem> items;
  items.reserve(plan.items.size());
  for (const ReadItem& item : plan.items) items.push_back(locate(metadata, item));
  std::ranges::sort(items, std::less<>());
  return items;
}

int64_t overlap_bytes(const CheckpointMetadata& metadata, const ReadItem& item) {
  return checked_mul(item.overlap.numel(), bits_per_element(tensor_of(metadata, item).dtype())) / 8;
}

int64_t total_bytes(const CheckpointMetadata& metadata, const std::vector<ReadItem>& items) {
  int64_t total = 0;
  for (const ReadItem& item : items) total = checked_add(total, overlap_bytes(metadata, item));
  return total;
}

// The view must name as many cells as the overlap has, all inside the storage: it may come from a user's planner.
Delivery make_delivery(const ReadItem& item, const StoredTensor& tensor, const Box& chunk, const TargetView& target) {
  const int64_t bits = bits_per_element(tensor.dtype());
  ByteView to = byte_view(target.view, bits);
  const Interval hull = to.hull();
  const auto room = static_cast<int64_t>(target.storage.size());
  HP_CHECK(target.view.numel() == item.overlap.numel() && hull.begin >= 0 && hull.end <= room, kInvalidArgument,
           "acquire_tensor for cells ", to_string(item.overlap), " of tensor ", quoted_name(tensor.name()),
           " gave the view ", to_string(target.view), " of a storage of ", room,
           " bytes, but it must name as many elements as there are cells, all inside the storage");
  return {ViewCursor(byte_view(view_in_chunk(item, chunk), bits)), ViewCursor(std::move(to)), target.storage};
}

}  // namespace

std::set<int64_t> files_of(const CheckpointMetadata& metadata, const LoadPlan& plan) {
  std::set<int64_t> files;
  for (const ReadItem& item : plan.items) files.insert(locate(metadata, item).file);
  return files;
}

void read_items(const CheckpointMetadata& metadata, const LoadPlan& plan, LoadPlanner& planner, Progress& progress,
                const OpenFile& open_file, int threads) {
  const std::vector<LocatedItem> items = in_disk_order(metadata, plan);
  progress.start(total_bytes(metadata, plan.items));
  ParallelReader reader(threads, progress);
  for (auto first = items.begin(); first != items.end();) {
    const StoredTensor& tensor = tensor_of(metadata, *first->item);
    const StoredChunk chunk = tensor.chunk(first->item->chunk);
    const auto last = std::find_if(first, items.end(), [&](const LocatedItem& i) { return !i.is_of_chunk_of(*first); });
    ChunkRead read;
    for (auto it = first; it != last; ++it) {
      TargetView target = planner.acquire_tensor(plan, *it->item);
      prefer_huge_pages(target.storage);
      read.deliveries.push_back(make_delivery(*it->item, tensor, chunk.box, target));
      read.owners.push_back(std::move(target.owner));
      read.bytes += overlap_bytes(metadata, *it->item);
    }
    OpenedFile file = open_file(chunk.file);
    read.source = {std::move(file.read), std::move(file.path), tensor.name(), chunk};
    reader.add(std::move(read));
    first = last;
  }
  reader.finish();
  progress.finish();
}

}  // namespace hyper_parallel
