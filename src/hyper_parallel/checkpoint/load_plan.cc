#include "hyper_parallel/checkpoint/load_plan.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/box_index.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

// So many looks at a chunk cost less than an index of them.
constexpr int64_t kLooksWithoutIndex = 256;

std::string kind_text(DType dtype, const Dims& shape) { return str_cat(to_string(dtype), " ", shape_text(shape)); }

void check_missing(const CheckpointMetadata& metadata, const std::vector<LoadTarget>& targets,
                   const LoadOptions& options) {
  std::vector<std::string_view> missing;
  for (const LoadTarget& target : targets) {
    if (metadata.find_tensor(target.name) != nullptr) continue;
    HP_CHECK(metadata.find_value(target.name) == nullptr, kInvalidArgument, quoted_name(target.name),
             " is stored as a value, but wanted as a tensor ", kind_text(target.dtype, target.shape));
    if (!allows(options.allow_missing, target.name)) missing.push_back(target.name);
  }
  HP_CHECK(missing.empty(), kInvalidArgument, "the checkpoint does not hold ", name_list(missing),
           "; entries in allow_missing may be absent and stay as they are");
}

void check_target(const LoadTarget& target, const StoredTensor& stored, const LoadOptions& options) {
  HP_CHECK(target.shape == stored.shape(), kInvalidArgument, "tensor ", quoted_name(target.name), " is stored as ",
           kind_text(stored.dtype(), stored.shape()), ", but wanted as ", kind_text(target.dtype, target.shape),
           "; a load never changes a shape");
  HP_CHECK(target.dtype == stored.dtype() || allows(options.allow_cast, target.name), kInvalidArgument, "tensor ",
           quoted_name(target.name), " is stored as ", to_string(stored.dtype()), ", but wanted as ",
           to_string(target.dtype), "; entries in allow_cast are converted");
}

void check_box(const LoadTarget& target, const Box& box) {
  const Dims& shape = target.shape;
  bool inside = box.offsets.size() == shape.size() && box.sizes.size() == shape.size();
  for (size_t dim = 0; inside && dim < shape.size(); ++dim) {
    inside = box.offsets[dim] >= 0 && box.sizes[dim] >= 1 && box.sizes[dim] <= shape[dim] - box.offsets[dim];
  }
  HP_CHECK(inside, kInvalidArgument, "tensor ", quoted_name(target.name), " of shape ", shape_text(shape),
           ": the wanted box ", to_string(box), " has no cells or does not lie in the tensor");
}

// Calls `visit(chunk)` for the chunks that share a cell with a box; at most a little more often.
class ChunkSearch {
 public:
  ChunkSearch(const StoredTensor& stored, size_t boxes) : stored_(stored) {
    const int64_t chunks = stored.chunk_count();
    if (boxes < 2 || chunks < kLooksWithoutIndex / static_cast<int64_t>(boxes)) return;
    index_.emplace(stored.shape().size(), chunks, [&](int64_t chunk) { return stored.chunk_box(chunk); });
  }

  void for_each(const Box& wanted, const std::function<void(int64_t)>& visit) const {
    if (index_) return index_->for_each_overlap(wanted, visit);
    for (int64_t chunk = 0; chunk < stored_.chunk_count(); ++chunk) visit(chunk);
  }

 private:
  const StoredTensor& stored_;
  std::optional<BoxIndex> index_;
};

// An item and where its bytes lie on the disk.
struct PlacedItem {
  ReadItem item;
  int64_t file = 0;
  int64_t begin = 0;
};

void add_items(const LoadTarget& target, int64_t target_number, const StoredTensor& stored, int64_t tensor_number,
               std::vector<PlacedItem>& items) {
  const ChunkSearch search(stored, target.boxes.size());
  for (size_t number = 0; number < target.boxes.size(); ++number) {
    const Box& wanted = target.boxes[number];
    check_box(target, wanted);
    search.for_each(wanted, [&](int64_t chunk) {
      auto overlap = intersect(stored.chunk_box(chunk), wanted);
      if (!overlap) return;
      const StoredChunk place = stored.chunk(chunk);
      items.push_back({{target_number, static_cast<int64_t>(number), tensor_number, chunk, std::move(*overlap)},
                       place.file,
                       place.begin});
    });
  }
}

// The order of LoadPlan::items; the rest makes it the same on every run.
bool stands_before(const PlacedItem& a, const PlacedItem& b) {
  if (std::tie(a.file, a.begin) != std::tie(b.file, b.begin))
    return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
  const auto order =
      std::lexicographical_compare_three_way(a.item.overlap.offsets.begin(), a.item.overlap.offsets.end(),
                                             b.item.overlap.offsets.begin(), b.item.overlap.offsets.end());
  if (order != 0) return order < 0;
  return std::tie(a.item.target, a.item.box) < std::tie(b.item.target, b.item.box);
}

// Where the cells of `part` lie in the row-major order of `whole`, whose first cell is element `start`.
StridedView view_of_part(const Box& part, const Box& whole, int64_t start) {
  const Dims strides = row_major_strides(whole.sizes);
  int64_t offset = start;
  for (size_t dim = 0; dim < part.ndim(); ++dim) offset += (part.offsets[dim] - whole.offsets[dim]) * strides[dim];
  return collapsed_view(offset, part.sizes, strides);
}

}  // namespace

LoadTarget load_target(std::string name, DType dtype, Dims shape, const Region& region) {
  return {std::move(name), dtype, std::move(shape), region_boxes(region)};
}

StridedView view_in_chunk(const ReadItem& item, const Box& chunk) { return view_of_part(item.overlap, chunk, 0); }

StridedView view_in_target(const ReadItem& item, const LoadTarget& target) {
  const auto number = static_cast<size_t>(item.box);
  int64_t start = 0;
  for (size_t before = 0; before < number; ++before) start += target.boxes[before].numel();
  return view_of_part(item.overlap, target.boxes[number], start);
}

LoadPlan plan_load(const CheckpointMetadata& metadata, std::vector<LoadTarget> targets, const LoadOptions& options) {
  check_missing(metadata, targets, options);
  std::vector<PlacedItem> items;
  for (size_t number = 0; number < targets.size(); ++number) {
    const StoredTensor* stored = metadata.find_tensor(targets[number].name);
    if (stored == nullptr) continue;
    check_target(targets[number], *stored, options);
    add_items(targets[number], static_cast<int64_t>(number), *stored, stored - metadata.tensors().data(), items);
  }
  if (!std::ranges::is_sorted(items, stands_before)) std::ranges::sort(items, stands_before);
  LoadPlan plan{std::move(targets), {}};
  plan.items.reserve(items.size());
  for (PlacedItem& placed : items) plan.items.push_back(std::move(placed.item));
  return plan;
}

bool allows(const std::vector<std::string>& patterns, std::string_view name) {
  const std::string text(name);
  // fnmatch(3) ends at a NUL, so that a name with one can only be meant as it stands.
  const bool can_match = name.find('\0') == std::string_view::npos;
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    if (pattern == name) return true;
    return can_match && pattern.find('\0') == std::string::npos && ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  });
}

std::string name_list(const std::vector<std::string_view>& names) {
  constexpr size_t kShownNames = 10;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kShownNames); ++i) shown.push_back(quoted_name(names[i]));
  std::string text = join(shown, ", ");
  if (names.size() > kShownNames) text += str_cat(" and ", names.size() - kShownNames, " more");
  return text;
}

}  // namespace hyper_parallel
