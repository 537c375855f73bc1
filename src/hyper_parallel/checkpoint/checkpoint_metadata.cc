#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/chunk_cover.h"
#include "hyper_parallel/checkpoint/storage_bytes.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

constexpr size_t kMaxFileNameBytes = 255;
constexpr size_t kSaveIdDigits = 16;

std::string tensor_text(std::string_view name) { return str_cat("tensor ", quoted_name(name)); }
std::string file_text(std::string_view name) { return str_cat("file ", quoted_name(name)); }

std::string box_text(const Box& box) { return str_cat(shape_text(box.offsets), "+", shape_text(box.sizes)); }

// is_utf8, at the speed of memory for the ASCII text that nearly every name is.
bool is_text(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return (static_cast<uint8_t>(c) & 0x80) != 0; }) || is_utf8(text);
}

template <typename Entry>
std::string_view name_of(const Entry& entry) {
  if constexpr (requires { entry.name(); }) {
    return entry.name();
  } else {
    return entry.name;
  }
}

// Sorts unless that is done: it costs nothing then, and tensors of many chunks are not moved.
template <typename Entry>
void sort_by_name(std::vector<Entry>& entries, std::string_view kind) {
  if (!std::ranges::is_sorted(entries, {}, name_of<Entry>)) std::ranges::sort(entries, {}, name_of<Entry>);
  const auto twice = std::ranges::adjacent_find(entries, {}, name_of<Entry>);
  HP_CHECK(twice == entries.end(), kInvalidArgument, kind, " ", quoted_name(name_of(*twice)),
           " occurs twice, but a name must be unique");
  for (const Entry& entry : entries) {
    HP_CHECK(is_text(name_of(entry)), kInvalidArgument, kind, " ", quoted_name(name_of(entry)),
             " has a name that is not UTF-8");
  }
}

template <typename Entry>
const Entry* find_by_name(const std::vector<Entry>& entries, std::string_view name) {
  const auto found = std::ranges::lower_bound(entries, name, {}, name_of<Entry>);
  return found != entries.end() && name_of(*found) == name ? &*found : nullptr;
}

// Sorts the files and lets the tensors follow: a chunk's file is a number.
void sort_files(CheckpointParts& parts) {
  const auto name = [&parts](size_t i) -> std::string_view { return parts.files[i].name; };
  std::vector<size_t> order(parts.files.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!std::ranges::is_sorted(order, {}, name)) {
    std::ranges::sort(order, {}, name);
    std::vector<StoredFile> sorted;
    sorted.reserve(order.size());
    std::vector<int64_t> numbers(order.size());
    for (const size_t old : order) {
      numbers[old] = static_cast<int64_t>(sorted.size());
      sorted.push_back(std::move(parts.files[old]));
    }
    parts.files = std::move(sorted);
    for (StoredTensor& tensor : parts.tensors) tensor.renumber_files(numbers);
  }
  sort_by_name(parts.files, "file");
}

void check_files(const std::vector<StoredFile>& files) {
  for (const StoredFile& file : files) {
    HP_CHECK(is_file_name(file.name), kInvalidArgument, file_text(file.name),
             " has a name that is not one visible path component: it must have 1 to ", kMaxFileNameBytes,
             " bytes, no '/', no control character and no leading '.'");
    HP_CHECK(file.bytes >= 0, kInvalidArgument, file_text(file.name), " has ", file.bytes,
             " bytes, but a size must not be negative");
  }
}

void check_chunks_in_files(const StoredTensor& tensor, const std::vector<StoredFile>& files) {
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) {
    const ChunkPlace chunk = tensor.chunk_place(i);
    HP_CHECK(chunk.file < static_cast<int64_t>(files.size()), kInvalidArgument, tensor_text(tensor.name()), " chunk ",
             i, " lies in file number ", chunk.file, ", but there are ", files.size(), " files");
    const StoredFile& file = files[static_cast<size_t>(chunk.file)];
    HP_CHECK(chunk.bytes <= file.bytes && chunk.begin <= file.bytes - chunk.bytes, kInvalidArgument,
             tensor_text(tensor.name()), " chunk ", i, " takes ", chunk.bytes, " bytes from byte ", chunk.begin,
             ", but ", file_text(file.name), " has ", file.bytes);
  }
}

// Calls visit(tensor number, place) for every chunk.
template <typename Visit>
void for_each_place(const std::vector<StoredTensor>& tensors, const Visit& visit) {
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    for (int64_t i = 0; i < tensors[tensor].chunk_count(); ++i) visit(tensor, tensors[tensor].chunk_place(i));
  }
}

// True if in every file each chunk begins behind the one before it, as where one tensor was written after the other.
bool are_ascending(const CheckpointParts& parts) {
  std::vector<int64_t> ends(parts.files.size(), 0);
  bool ascending = true;
  for_each_place(parts.tensors, [&](size_t, const ChunkPlace& place) {
    int64_t& end = ends[static_cast<size_t>(place.file)];
    ascending = ascending && place.begin >= end;
    end = place.begin + place.bytes;
  });
  return ascending;
}

// Throws if two chunks share a byte. All of them must lie in their files.
void check_disjoint_in_files(const CheckpointParts& parts) {
  if (are_ascending(parts)) return;
  struct Range {
    int64_t file, begin, end;
    size_t tensor;
  };
  std::vector<Range> ranges;
  for_each_place(parts.tensors, [&](size_t tensor, const ChunkPlace& place) {
    ranges.push_back({place.file, place.begin, place.begin + place.bytes, tensor});
  });
  std::ranges::sort(ranges, {}, [](const Range& range) { return std::tuple(range.file, range.begin, range.tensor); });
  const auto overlap = [](const Range& a, const Range& b) { return a.file == b.file && b.begin < a.end; };
  const auto found = std::ranges::adjacent_find(ranges, overlap);
  if (found == ranges.end()) return;
  const auto text = [&](const Range& range) {
    return str_cat(tensor_text(parts.tensors[range.tensor].name()), " at bytes ", range.begin, " to ", range.end);
  };
  raise(ErrorCode::kInvalidArgument, file_text(parts.files[static_cast<size_t>(found->file)].name), " holds ",
        text(found[0]), " and ", text(found[1]), ", but no two chunks may share a byte");
}

void check_tiling(const StoredTensor& tensor) {
  const std::optional<std::string> fault =
      tiling_fault(tensor.shape(), tensor.chunk_count(), [&tensor](int64_t index) { return tensor.chunk_box(index); });
  HP_CHECK(!fault.has_value(), kInvalidArgument, tensor_text(tensor.name()), " of shape ", shape_text(tensor.shape()),
           " is not stored right: ", *fault);
}

// Checks that the leaves of a structure are the names of all entries, each once.
class StructureChecker {
 public:
  explicit StructureChecker(const CheckpointParts& parts) : parts_(parts) {}

  void check() {
    visit(parts_.structure);
    std::ranges::sort(leaves_);
    const auto twice = std::ranges::adjacent_find(leaves_);
    HP_CHECK(twice == leaves_.end(), kInvalidArgument, "the structure has the leaf ", quoted_name(*twice), " twice");
    check_all_named(parts_.tensors, "tensor");
    check_all_named(parts_.values, "value");
  }

 private:
  void visit(const Value& node) {
    if (const auto* dict = std::get_if<ValueDict>(&node.variant())) {
      for (const auto& [key, item] : dict->items) visit(item);
    } else if (const auto* list = std::get_if<ValueList>(&node.variant())) {
      for (const Value& item : list->items) visit(item);
    } else if (const auto* tuple = std::get_if<ValueTuple>(&node.variant())) {
      for (const Value& item : tuple->items) visit(item);
    } else {
      visit_leaf(node);
    }
  }

  void visit_leaf(const Value& leaf) {
    const auto* name = std::get_if<std::string>(&leaf.variant());
    HP_CHECK(name != nullptr, kInvalidArgument, "the structure has the leaf ", to_string(leaf),
             ", but a leaf must be the name of an entry");
    const bool known = find_by_name(parts_.tensors, *name) != nullptr || find_by_name(parts_.values, *name) != nullptr;
    HP_CHECK(known, kInvalidArgument, "the structure has the leaf ", quoted_name(*name),
             ", but there is no entry of that name");
    leaves_.emplace_back(*name);
  }

  template <typename Entry>
  void check_all_named(const std::vector<Entry>& entries, std::string_view kind) const {
    for (const Entry& entry : entries) {
      HP_CHECK(std::ranges::binary_search(leaves_, name_of(entry)), kInvalidArgument, "the structure lacks the ", kind,
               " ", quoted_name(name_of(entry)));
    }
  }

  const CheckpointParts& parts_;
  std::vector<std::string_view> leaves_;
};

void check_values(const CheckpointParts& parts) {
  for (const NamedValue& entry : parts.values) {
    check_value(entry.value, str_cat("value ", quoted_name(entry.name)));
    HP_CHECK(find_by_name(parts.tensors, entry.name) == nullptr, kInvalidArgument, "the name ", quoted_name(entry.name),
             " is both a tensor's and a value's");
  }
  check_value(parts.structure, "the structure");
  if (!parts.structure.is_none()) StructureChecker(parts).check();
}

}  // namespace

StoredTensor::StoredTensor(std::string name, DType dtype, Dims shape)
    : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {
  bytes_ = storage_bytes(dtype_, shape_, tensor_text(name_));
}

StoredChunk StoredTensor::chunk(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  HP_DCHECK(i < first_checksum_.size());
  const int64_t* row = rows_.data() + i * row_size();
  StoredChunk chunk;
  chunk.box = chunk_box(index);
  chunk.file = row[0];
  chunk.begin = row[1];
  chunk.bytes = unchecked_bytes(chunk.box.sizes);
  const size_t key_begin = key_ends_.empty() || i == 0 ? 0 : key_ends_[i - 1];
  const size_t key_end = key_ends_.empty() ? 0 : key_ends_[i];
  chunk.key = key_begin == key_end ? name_ : std::string_view(key_text_.data() + key_begin, key_end - key_begin);
  chunk.checksums = std::span(checksums_).subspan(first_checksum_[i], static_cast<size_t>(block_count(chunk.bytes)));
  return chunk;
}

Box StoredTensor::chunk_box(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  HP_DCHECK(i < first_checksum_.size());
  const std::span<const int64_t> row = std::span(rows_).subspan(i * row_size(), row_size());
  return {Dims(row.subspan(2, shape_.size())), Dims(row.subspan(2 + shape_.size()))};
}

ChunkPlace StoredTensor::chunk_place(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  HP_DCHECK(i < first_checksum_.size());
  const std::span<const int64_t> row = std::span(rows_).subspan(i * row_size(), row_size());
  return {row[0], row[1], unchecked_bytes(row.subspan(2 + shape_.size()))};
}

void StoredTensor::reserve(int64_t chunks) {
  const auto count = static_cast<size_t>(chunks);
  rows_.reserve(count * row_size());
  first_checksum_.reserve(count);
}

void StoredTensor::add_chunk(const Box& box, int64_t file, int64_t begin, std::string_view key,
                             std::span<const uint32_t> checksums) {
  const int64_t bytes = box_bytes(box);
  HP_CHECK(file >= 0 && begin >= 0, kInvalidArgument, tensor_text(name_), " chunk ", box_text(box), " lies in file ",
           file, " at byte ", begin, ", but these must not be negative");
  HP_CHECK(static_cast<int64_t>(checksums.size()) == block_count(bytes), kInvalidArgument, tensor_text(name_),
           " chunk ", box_text(box), " has ", checksums.size(), " checksums, but its ", bytes, " bytes are ",
           block_count(bytes), " blocks");
  HP_CHECK(is_text(key), kInvalidArgument, tensor_text(name_), " chunk ", box_text(box), " has the key ",
           quoted_name(key), ", which is not UTF-8");
  append_key(key == name_ ? std::string_view() : key);
  rows_.push_back(file);
  rows_.push_back(begin);
  rows_.insert(rows_.end(), box.offsets.begin(), box.offsets.end());
  rows_.insert(rows_.end(), box.sizes.begin(), box.sizes.end());
  first_checksum_.push_back(checksums_.size());
  checksums_.insert(checksums_.end(), checksums.begin(), checksums.end());
}

void StoredTensor::renumber_files(std::span<const int64_t> numbers) {
  for (size_t at = 0; at < rows_.size(); at += row_size()) {
    HP_CHECK(rows_[at] < static_cast<int64_t>(numbers.size()), kInvalidArgument, tensor_text(name_), " chunk ",
             at / row_size(), " lies in file number ", rows_[at], ", but there are ", numbers.size(), " files");
    rows_[at] = numbers[static_cast<size_t>(rows_[at])];
  }
}

int64_t StoredTensor::box_bytes(const Box& box) const {
  HP_CHECK(box.offsets.size() == shape_.size() && box.sizes.size() == shape_.size(), kInvalidArgument,
           tensor_text(name_), " chunk ", box_text(box), " has another rank than the shape ", shape_text(shape_));
  for (size_t dim = 0; dim < shape_.size(); ++dim) {
    HP_CHECK(box.sizes[dim] > 0, kInvalidArgument, tensor_text(name_), " chunk ", box_text(box),
             " has no cells, but a chunk must have some");
    HP_CHECK(box.offsets[dim] >= 0 && box.sizes[dim] <= shape_[dim] && box.offsets[dim] <= shape_[dim] - box.sizes[dim],
             kInvalidArgument, tensor_text(name_), " chunk ", box_text(box), " leaves the shape ", shape_text(shape_));
  }
  if (bits_per_element(dtype_) % 8 != 0) storage_bytes(dtype_, box.sizes, str_cat(tensor_text(name_), " chunk"));
  return unchecked_bytes(box.sizes);
}

int64_t StoredTensor::unchecked_bytes(std::span<const int64_t> sizes) const {
  // A box inside the shape is no larger than the tensor, whose bits fit in int64.
  int64_t bits = bits_per_element(dtype_);
  for (const int64_t size : sizes) bits *= size;
  return bits / 8;
}

void StoredTensor::append_key(std::string_view key) {
  if (key.empty() && key_ends_.empty()) return;
  key_ends_.resize(first_checksum_.size(), 0);  // the first own key: those before had none
  key_text_.insert(key_text_.end(), key.begin(), key.end());
  key_ends_.push_back(key_text_.size());
}

CheckpointMetadata::CheckpointMetadata(CheckpointParts parts) : parts_(std::move(parts)) {
  HP_CHECK(is_save_id(parts_.save_id), kInvalidArgument, "save_id is ", quoted_name(parts_.save_id),
           ", but it must be ", kSaveIdDigits, " lower-case hex digits");
  check_files(parts_.files);
  sort_files(parts_);
  sort_by_name(parts_.tensors, "tensor");
  sort_by_name(parts_.values, "value");
  for (const StoredTensor& tensor : parts_.tensors) {
    check_chunks_in_files(tensor, parts_.files);
    check_tiling(tensor);
  }
  check_disjoint_in_files(parts_);
  check_values(parts_);
}

const StoredTensor* CheckpointMetadata::find_tensor(std::string_view name) const {
  return find_by_name(parts_.tensors, name);
}

const Value* CheckpointMetadata::find_value(std::string_view name) const {
  const NamedValue* found = find_by_name(parts_.values, name);
  return found == nullptr ? nullptr : &found->value;
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxFileNameBytes && name.front() != '.' &&
         name.find('/') == std::string_view::npos && printable(name) == name;
}

bool is_save_id(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == kSaveIdDigits && std::ranges::all_of(text, is_digit);
}

}  // namespace hyper_parallel
