#include "hyper_parallel/checkpoint/safetensors_header.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/storage_bytes.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

std::string owner_text(std::string_view name) { return str_cat("tensor ", quoted_name(name)); }

std::string range_text(const TensorEntry& tensor) { return str_cat("[", tensor.begin, ", ", tensor.end, ")"); }

void check_names(const std::vector<TensorEntry>& tensors) {
  for (const TensorEntry& tensor : tensors) {
    HP_CHECK(is_utf8(tensor.name), kInvalidArgument, owner_text(tensor.name), " has a name that is not UTF-8");
    HP_CHECK(tensor.name != kMetadataKey, kInvalidArgument, "a tensor must not be named '", kMetadataKey,
             "', the format keeps that name for its string map");
  }
}

void check_metadata(const SafetensorsMetadata& metadata) {
  for (const auto& [key, value] : metadata) {
    HP_CHECK(is_utf8(key) && is_utf8(value), kInvalidArgument, kMetadataKey, " entry ", quoted_name(key),
             " is not UTF-8");
  }
}

// The order in which the stock library writes tensors of one layout: by descending type, then by name.
bool placed_before(DType a_dtype, std::string_view a_name, DType b_dtype, std::string_view b_name) {
  return a_dtype != b_dtype ? a_dtype > b_dtype : a_name < b_name;
}

void sort_by_range(std::vector<TensorEntry>& tensors) {
  std::ranges::sort(tensors, [](const TensorEntry& a, const TensorEntry& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    if (a.end != b.end) return a.end < b.end;
    return placed_before(a.dtype, a.name, b.dtype, b.name);
  });
}

}  // namespace

SafetensorsHeader::SafetensorsHeader(std::vector<TensorEntry> tensors, SafetensorsMetadata metadata)
    : tensors_(std::move(tensors)), metadata_(std::move(metadata)) {
  check_names(tensors_);
  check_metadata(metadata_);
  sort_by_range(tensors_);
  index_names();
  check_tiling();
}

void SafetensorsHeader::index_names() {
  const auto name = [this](size_t i) -> const std::string& { return tensors_[i].name; };
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::ranges::sort(by_name_, {}, name);
  const auto twice = std::ranges::adjacent_find(by_name_, {}, name);
  HP_CHECK(twice == by_name_.end(), kInvalidArgument, owner_text(name(*twice)),
           " occurs twice, but a name must be unique");
}

// One pass in the order of the ranges. Each must begin where the one before it ended: a range that begins later leaves
// a hole, one that begins earlier overlaps.
void SafetensorsHeader::check_tiling() {
  int64_t start = 0;
  for (const TensorEntry& tensor : tensors_) {
    HP_CHECK(tensor.begin >= 0 && tensor.begin <= tensor.end, kInvalidArgument, owner_text(tensor.name),
             " has data_offsets ", range_text(tensor), ", but they must satisfy 0 <= begin <= end");
    HP_CHECK(tensor.begin >= start, kInvalidArgument, owner_text(tensor.name), " has data_offsets ", range_text(tensor),
             ", which overlap the tensor before it, that ends at byte ", start);
    HP_CHECK(tensor.begin == start, kInvalidArgument, owner_text(tensor.name), " has data_offsets ", range_text(tensor),
             ", which leave a hole: no tensor holds the bytes from ", start);
    const int64_t size = storage_bytes(tensor.dtype, tensor.shape, owner_text(tensor.name));
    HP_CHECK(tensor.size_bytes() == size, kInvalidArgument, owner_text(tensor.name), " has data_offsets ",
             range_text(tensor), ", that is ", tensor.size_bytes(), " bytes, but its shape ", shape_text(tensor.shape),
             " of ", tensor.dtype, " takes ", size);
    start = tensor.end;
  }
  data_size_ = start;
}

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto name_of = [this](size_t i) -> std::string_view { return tensors_[i].name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  if (found == by_name_.end() || name_of(*found) != name) return nullptr;
  return &tensors_[*found];
}

const TensorEntry& SafetensorsHeader::at(std::string_view name) const {
  const TensorEntry* tensor = find(name);
  HP_CHECK(tensor != nullptr, kInvalidArgument, "there is no tensor ", quoted_name(name), " among the ",
           tensors_.size(), " of the file");
  return *tensor;
}

SafetensorsHeader arrange_tensors(std::vector<TensorSpec> specs, SafetensorsMetadata metadata) {
  std::ranges::sort(
      specs, [](const TensorSpec& a, const TensorSpec& b) { return placed_before(a.dtype, a.name, b.dtype, b.name); });
  std::vector<TensorEntry> tensors;
  tensors.reserve(specs.size());
  int64_t begin = 0;
  for (TensorSpec& spec : specs) {
    const int64_t end = checked_add(begin, storage_bytes(spec.dtype, spec.shape, owner_text(spec.name)));
    tensors.push_back({std::move(spec.name), spec.dtype, std::move(spec.shape), begin, end});
    begin = end;
  }
  return SafetensorsHeader(std::move(tensors), std::move(metadata));
}

}  // namespace hyper_parallel
