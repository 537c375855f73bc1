#include "hyper_parallel/tools/verify_command.h"

#include <algorithm>
#include <compare>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/directory.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/save_id.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/checkpoint_source.h"
#include "hyper_parallel/tools/safetensors_reader.h"

namespace hyper_parallel {
namespace {

/// A chunk by number, in the order of the disk.
struct ChunkPlace {
  int64_t file;
  int64_t begin;
  int64_t tensor;
  int64_t chunk;
  friend auto operator<=>(const ChunkPlace&, const ChunkPlace&) = default;
};

std::vector<ChunkPlace> chunks_by_place(const CheckpointMetadata& metadata) {
  std::vector<ChunkPlace> places;
  for (size_t tensor = 0; tensor < metadata.tensors().size(); ++tensor) {
    const StoredTensor& stored = metadata.tensors()[tensor];
    for (int64_t i = 0; i < stored.chunk_count(); ++i) {
      const StoredChunk chunk = stored.chunk(i);
      places.push_back({chunk.file, chunk.begin, static_cast<int64_t>(tensor), i});
    }
  }
  std::ranges::sort(places);
  return places;
}

std::string range_text(int64_t begin, int64_t end) { return str_cat("[", begin, ", ", end, ")"); }

/// Walks over the files of one checkpoint and collects what is wrong.
class Verification {
 public:
  Verification(OpenedCheckpoint opened, Progress& progress)
      : opened_(std::move(opened)), metadata_(opened_.metadata()), progress_(progress) {}

  VerifyReport run() {
    find_unpublished();
    const std::vector<ChunkPlace> places = chunks_by_place(metadata_);
    report_.save_id = metadata_.save_id();
    report_.files = std::ssize(metadata_.files());
    report_.tensors = std::ssize(metadata_.tensors());
    report_.chunks = std::ssize(places);
    progress_.start(tensor_bytes(metadata_));
    auto first = places.begin();
    for (int64_t file = 0; file < report_.files; ++file) {
      const auto last = std::find_if(first, places.end(), [&](const ChunkPlace& place) { return place.file != file; });
      verify_file(file, {first, last});
      first = last;
    }
    progress_.finish();
    return std::move(report_);
  }

 private:
  const StoredTensor& tensor_of(const ChunkPlace& place) const {
    return metadata_.tensors()[static_cast<size_t>(place.tensor)];
  }

  std::string quoted(const StoredFile& stored) const { return quoted_path(opened_.directory().path() / stored.name); }

  /// Nothing after a fault.
  std::optional<FileDescriptor> open(int64_t number) {
    const StoredFile& stored = metadata_.files()[static_cast<size_t>(number)];
    std::optional<FileDescriptor> file;
    try {
      file = opened_.open(number);
    } catch (const Error& error) {
      add_fault(stored.name, "", error.what());
      return std::nullopt;
    }
    if (file.has_value()) return file;
    opened_.check_not_replaced(number);
    add_fault(stored.name, "", "is missing");
    return std::nullopt;
  }

  template <typename... Parts>
  void add_fault(std::string_view file, std::string_view tensor, const Parts&... parts) {
    if (report_.fault_count++ >= kMaxListedFaults) return;
    report_.faults.push_back({std::string(file), std::string(tensor), str_cat(parts...)});
  }

  void verify_file(int64_t number, std::span<const ChunkPlace> places) {
    const StoredFile& stored = metadata_.files()[static_cast<size_t>(number)];
    std::optional<FileDescriptor> file = open(number);
    std::optional<FileDescriptor> for_header = file.has_value() ? open(number) : std::nullopt;
    if (!for_header.has_value()) return;
    try {
      const int64_t bytes = file_size(*file, quoted(stored));
      if (bytes != stored.bytes) {
        add_fault(stored.name, "", "has ", bytes, " bytes, but the metadata says ", stored.bytes);
      }
      compare_header(stored, std::move(*for_header), places);
      for (const ChunkPlace& place : places) verify_blocks(stored, *file, bytes, place);
    } catch (const Error& error) {
      add_fault(stored.name, "", error.what());
    }
  }

  void compare_header(const StoredFile& stored, FileDescriptor file, std::span<const ChunkPlace> places) {
    std::optional<SafetensorsReader> opened;
    try {
      opened.emplace(read_safetensors(std::move(file), quoted(stored)));
    } catch (const Error& error) {
      return add_fault(stored.name, "", error.what());
    }
    std::set<std::string_view> keys;
    for (const ChunkPlace& place : places) {
      const StoredChunk chunk = tensor_of(place).chunk(place.chunk);
      compare_chunk(stored, *opened, tensor_of(place), chunk);
      if (!keys.insert(chunk.key).second) {
        add_fault(stored.name, tensor_of(place).name(), "the metadata has two chunks under the key ",
                  quoted_name(chunk.key));
      }
    }
    for (const TensorEntry& entry : opened->header.tensors()) {
      if (!keys.contains(entry.name)) {
        add_fault(stored.name, "", "holds ", quoted_name(entry.name), ", of which the metadata does not know");
      }
    }
  }

  void compare_chunk(const StoredFile& stored, const SafetensorsReader& opened, const StoredTensor& tensor,
                     const StoredChunk& chunk) {
    const TensorEntry* entry = opened.header.find(chunk.key);
    if (entry == nullptr) {
      return add_fault(stored.name, tensor.name(), "has no key ", quoted_name(chunk.key), " for chunk ",
                       to_string(chunk.box));
    }
    if (entry->dtype != tensor.dtype()) {
      add_fault(stored.name, tensor.name(), "key ", quoted_name(chunk.key), " has dtype ", entry->dtype,
                ", but the metadata says ", tensor.dtype());
    }
    if (!std::ranges::equal(entry->shape, chunk.box.sizes)) {
      add_fault(stored.name, tensor.name(), "key ", quoted_name(chunk.key), " has shape ", shape_text(entry->shape),
                ", but the metadata says ", shape_text(chunk.box.sizes));
    }
    const int64_t begin = opened.data_begin + entry->begin;
    const int64_t end = opened.data_begin + entry->end;
    if (begin != chunk.begin || end != chunk.range().end) {
      add_fault(stored.name, tensor.name(), "key ", quoted_name(chunk.key), " has the bytes ", range_text(begin, end),
                ", but the metadata says ", range_text(chunk.begin, chunk.range().end));
    }
  }

  void verify_blocks(const StoredFile& stored, const FileDescriptor& file, int64_t file_bytes,
                     const ChunkPlace& place) {
    const StoredTensor& tensor = tensor_of(place);
    const StoredChunk chunk = tensor.chunk(place.chunk);
    for (size_t block = 0; block < chunk.checksums.size(); ++block) {
      const int64_t begin = chunk.begin + static_cast<int64_t>(block) * kBlockBytes;
      const Interval bytes{begin, std::min(begin + kBlockBytes, chunk.range().end)};
      progress_.advance(bytes.size());
      if (const auto fault = block_fault(stored, file, file_bytes, bytes, chunk.checksums[block])) {
        add_fault(stored.name, tensor.name(), "block ", block, " of chunk ", to_string(chunk.box), ", bytes ",
                  range_text(bytes.begin, bytes.end), ", ", *fault);
      }
    }
  }

  std::optional<std::string> block_fault(const StoredFile& stored, const FileDescriptor& file, int64_t file_bytes,
                                         Interval range, uint32_t checksum) {
    if (range.end > file_bytes) return "lies past the end of the file";
    const std::span<std::byte> bytes = std::span(buffer_).first(static_cast<size_t>(range.size()));
    try {
      read_exactly(file, range.begin, bytes, quoted(stored));
    } catch (const Error& error) {
      return str_cat("cannot be read: ", error.what());
    }
    ++report_.blocks;
    report_.bytes += range.size();
    const uint32_t found = crc32c(bytes);
    if (found == checksum) return std::nullopt;
    return str_cat("has checksum ", checksum_text(found), " but the metadata says ", checksum_text(checksum));
  }

  void find_unpublished() {
    for (std::string& name : opened_.directory().names()) {
      const bool is_published = std::ranges::binary_search(metadata_.files(), name, {}, &StoredFile::name);
      if (save_id_of(name) && !is_published) report_.unpublished.push_back(std::move(name));
    }
    std::ranges::sort(report_.unpublished);
  }

  OpenedCheckpoint opened_;
  const CheckpointMetadata& metadata_;
  Progress& progress_;
  VerifyReport report_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kBlockBytes);
};

/// The report on a directory whose metadata says nothing.
VerifyReport fault_of_metadata(std::string message) {
  VerifyReport report;
  report.fault_count = 1;
  report.faults = {{std::string(kMetadataFile), "", std::move(message)}};
  return report;
}

}  // namespace

VerifyReport verify_checkpoint(const std::filesystem::path& directory, Progress& progress) {
  // A directory that cannot be opened is no checkpoint with a fault.
  if (!Directory(directory).status(std::string(kMetadataFile))) return fault_of_metadata("is missing");
  std::optional<OpenedCheckpoint> opened;
  try {
    opened.emplace(directory);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDataLoss) throw;
    return fault_of_metadata(printable(error.what()));
  }
  return verify_checkpoint(std::move(*opened), progress);
}

VerifyReport verify_checkpoint(OpenedCheckpoint opened, Progress& progress) {
  return Verification(std::move(opened), progress).run();
}

bool verify_checkpoint(const std::filesystem::path& directory, VerifyFormat format, std::ostream& out,
                       Progress& progress) {
  const VerifyReport report = verify_checkpoint(directory, progress);
  switch (format) {
    case VerifyFormat::kText:
      print_text(directory, report, out);
      break;
    case VerifyFormat::kJson:
      print_json(directory, report, out);
      break;
  }
  return report.ok();
}

}  // namespace hyper_parallel
