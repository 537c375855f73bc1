#include "hyper_parallel/checkpoint/written_parts.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

bool stands_before(const Box& a, const Box& b) {
  const auto order =
      std::lexicographical_compare_three_way(a.offsets.begin(), a.offsets.end(), b.offsets.begin(), b.offsets.end());
  if (order != 0) return order < 0;
  return std::ranges::lexicographical_compare(a.sizes, b.sizes);
}

bool has_boxes(const StoredTensor& stored, const PlannedTensor& planned) {
  if (stored.chunk_count() != static_cast<int64_t>(planned.boxes.size())) return false;
  std::vector<Box> written;
  for (int64_t chunk = 0; chunk < stored.chunk_count(); ++chunk) written.push_back(stored.chunk_box(chunk));
  if (written == planned.boxes) return true;
  std::vector<Box> wanted = planned.boxes;
  std::ranges::sort(written, stands_before);
  std::ranges::sort(wanted, stands_before);
  return written == wanted;
}

void check_written(const StoredTensor& stored, const PlannedTensor& planned) {
  const bool is_kind = stored.dtype() == planned.dtype && stored.shape() == planned.shape;
  HP_CHECK(is_kind && has_boxes(stored, planned), kInternal, "the storage wrote ", stored.chunk_count(),
           " chunks of tensor ", quoted_name(stored.name()), " as ", to_string(stored.dtype()), " ",
           shape_text(stored.shape()), ", but was told to write ", planned.boxes.size(), " as ",
           to_string(planned.dtype), " ", shape_text(planned.shape), ", each exactly once");
}

void check_files(const StoredTensor& stored, size_t files) {
  for (int64_t number = 0; number < stored.chunk_count(); ++number) {
    const int64_t file = stored.chunk(number).file;
    HP_CHECK(file < static_cast<int64_t>(files), kInternal, "the storage put a chunk of tensor ",
             quoted_name(stored.name()), " into file number ", file, " of ", files);
  }
}

// Numbers in the united list of files of a rank's files.
std::vector<int64_t> numbers_of(const std::vector<StoredFile>& files,
                                const std::map<std::string_view, int64_t>& united) {
  std::vector<int64_t> numbers;
  for (const StoredFile& file : files) numbers.push_back(united.at(file.name));
  return numbers;
}

std::vector<StoredFile> unite_files(const std::vector<CheckpointParts>& parts) {
  std::map<std::string_view, int64_t> sizes;
  for (const CheckpointParts& of_rank : parts) {
    for (const StoredFile& file : of_rank.files) {
      const int64_t bytes = sizes.emplace(file.name, file.bytes).first->second;
      HP_CHECK(bytes == file.bytes, kInternal, "ranks gave file ", quoted_name(file.name), " ", bytes, " and ",
               file.bytes, " bytes");
    }
  }
  std::vector<StoredFile> files;
  for (const auto& [name, bytes] : sizes) files.push_back({std::string(name), bytes});
  return files;
}

void append_chunks(StoredTensor& united, const StoredTensor& tensor) {
  HP_CHECK(united.dtype() == tensor.dtype() && united.shape() == tensor.shape(), kInternal, "ranks wrote tensor ",
           quoted_name(tensor.name()), " as ", to_string(united.dtype()), " ", shape_text(united.shape()), " and as ",
           to_string(tensor.dtype()), " ", shape_text(tensor.shape()));
  for (int64_t number = 0; number < tensor.chunk_count(); ++number) {
    const StoredChunk chunk = tensor.chunk(number);
    united.add_chunk(chunk.box, chunk.file, chunk.begin, chunk.key, chunk.checksums);
  }
}

}  // namespace

CheckpointParts checked_parts(CheckpointParts parts, const SavePlan& assigned) {
  std::unordered_map<std::string_view, const StoredTensor*> written;
  for (const StoredTensor& tensor : parts.tensors) {
    HP_CHECK(written.emplace(tensor.name(), &tensor).second, kInternal, "the storage named tensor ",
             quoted_name(tensor.name()), " twice");
  }
  std::vector<const PlannedTensor*> without_chunks;
  for (const PlannedTensor& planned : assigned.tensors) {
    const auto place = written.find(planned.name);
    if (place != written.end()) {
      check_written(*place->second, planned);
      check_files(*place->second, parts.files.size());
      written.erase(place);
    } else {
      HP_CHECK(planned.boxes.empty(), kInternal, "the storage did not write tensor ", quoted_name(planned.name));
      without_chunks.push_back(&planned);
    }
  }
  HP_CHECK(written.empty(), kInternal, "the storage wrote tensor ", quoted_name(written.begin()->first),
           ", which it was not told to write");
  for (const PlannedTensor* planned : without_chunks) {
    parts.tensors.emplace_back(planned->name, planned->dtype, planned->shape);
  }
  return parts;
}

CheckpointParts unite_parts(std::vector<CheckpointParts> parts) {
  CheckpointParts united;
  united.files = unite_files(parts);
  std::map<std::string_view, int64_t> numbers;
  for (const StoredFile& file : united.files) numbers.emplace(file.name, static_cast<int64_t>(numbers.size()));
  std::unordered_map<std::string, size_t> places;
  for (CheckpointParts& of_rank : parts) {
    const std::vector<int64_t> renumbered = numbers_of(of_rank.files, numbers);
    for (StoredTensor& tensor : of_rank.tensors) {
      tensor.renumber_files(renumbered);
      const auto [place, is_new] = places.emplace(tensor.name(), united.tensors.size());
      if (is_new) {
        united.tensors.push_back(std::move(tensor));
      } else {
        append_chunks(united.tensors[place->second], tensor);
      }
    }
  }
  return united;
}

}  // namespace hyper_parallel
