#include "hyper_parallel/tools/checkpoint_source.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/chunk_reader.h"
#include "hyper_parallel/checkpoint/load_plan.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/metadata_file.h"
#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/tools/safetensors_reader.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kBitsPerByte = 8;

LoadTarget cells_target(const StoredTensor& tensor, Interval cells) {
  return load_target(tensor.name(), tensor.dtype(), tensor.shape(), {whole_box(tensor.shape()), cells});
}

CheckpointMetadata parse_directory(const Directory& directory) {
  const std::optional<std::string> text = read_metadata_file(directory);
  HP_CHECK(text.has_value(), kInvalidArgument, "there is no checkpoint in ", quoted_path(directory.path()),
           ": it has no '", kMetadataFile, "'");
  return parse_metadata(std::as_bytes(std::span(*text)), quoted_path(directory.path() / kMetadataFile));
}

// The rest is for what the tool writes and for its standard streams.
size_t max_open_files() {
  constexpr rlim_t kWithoutLimit = 1024;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kWithoutLimit;
  return static_cast<size_t>(limit.rlim_cur / 3 * 2);
}

Delivery make_delivery(const ReadItem& item, const LoadTarget& target, const StoredChunk& chunk, int64_t bits,
                       std::span<std::byte> out) {
  return {ViewCursor(byte_view(view_in_chunk(item, chunk.box), bits)),
          ViewCursor(byte_view(view_in_target(item, target), bits)), out};
}

}  // namespace

CheckpointMetadata read_checkpoint_metadata(const std::filesystem::path& directory) {
  return parse_directory(Directory(directory));
}

int64_t tensor_bytes(const CheckpointMetadata& metadata) {
  int64_t bytes = 0;
  for (const StoredTensor& tensor : metadata.tensors()) bytes = checked_add(bytes, tensor.bytes());
  return bytes;
}

CheckpointSource::CheckpointSource(std::filesystem::path directory)
    : path_(std::move(directory)), directory_(path_), metadata_(parse_directory(directory_)) {
  const size_t most = max_open_files();
  for (int64_t file = 0; file < std::ssize(metadata_.files()); ++file) {
    FileDescriptor opened = open(file);
    if (files_.size() < most) files_.emplace(file, std::move(opened));
  }
}

std::string CheckpointSource::quoted(int64_t file) const {
  return quoted_path(path_ / metadata_.files()[static_cast<size_t>(file)].name);
}

FileDescriptor CheckpointSource::open(int64_t file) const {
  const StoredFile& stored = metadata_.files()[static_cast<size_t>(file)];
  std::optional<FileDescriptor> opened = directory_.open_regular(stored.name, O_RDONLY);
  HP_CHECK(opened.has_value(), kDataLoss, "checkpoint file ", quoted(file), " is missing");
  const int64_t bytes = file_size(*opened, quoted(file));
  HP_CHECK(bytes == stored.bytes, kDataLoss, "checkpoint file ", quoted(file), " has ", bytes,
           " bytes but the metadata says ", stored.bytes);
  return std::move(*opened);
}

void CheckpointSource::read(const StoredTensor& tensor, Interval cells, std::span<std::byte> out) {
  HP_DCHECK(static_cast<int64_t>(out.size()) == cell_bytes(tensor.dtype(), cells.size()));
  if (cells.empty()) return;
  const LoadPlan plan = plan_load(metadata_, {cells_target(tensor, cells)}, {});
  const int64_t bits = bits_per_element(tensor.dtype());
  NoProgress quiet;
  for (auto first = plan.items.begin(); first != plan.items.end();) {
    const StoredChunk chunk = tensor.chunk(first->chunk);
    const auto last =
        std::find_if(first, plan.items.end(), [&](const ReadItem& item) { return item.chunk != first->chunk; });
    std::vector<Delivery> deliveries;
    for (auto item = first; item != last; ++item) {
      deliveries.push_back(make_delivery(*item, plan.targets.front(), chunk, bits, out));
    }
    const auto kept = files_.find(chunk.file);
    const std::optional<FileDescriptor> passing = kept == files_.end() ? std::optional(open(chunk.file)) : std::nullopt;
    const int descriptor = passing ? passing->get() : kept->second.get();
    read_chunk({reads_from(descriptor), quoted(chunk.file), tensor.name(), chunk}, std::move(deliveries), block_,
               quiet);
    first = last;
  }
}

int64_t cell_bytes(DType dtype, int64_t cells) {
  const int64_t bits = checked_mul(cells, bits_per_element(dtype));
  HP_DCHECK(bits % kBitsPerByte == 0);
  return bits / kBitsPerByte;
}

SlabReader::SlabReader(CheckpointSource& source, int64_t slab_bytes) : source_(source), slab_bytes_(slab_bytes) {}

int64_t SlabReader::slab_cells(DType dtype) const {
  const int64_t cells = slab_bytes_ / bits_per_element(dtype) * kBitsPerByte;  // whole bytes for every width
  return std::max(cells, kBitsPerByte);
}

std::span<std::byte> SlabReader::Slab::bytes(int64_t count) {
  if (count > capacity) {
    memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count));
    capacity = count;
  }
  return {memory.get(), static_cast<size_t>(count)};
}

void SlabReader::stream(const StoredTensor& tensor, Interval cells, const Use& use) {
  const int64_t step = slab_cells(tensor.dtype());
  const auto run_at = [&](int64_t begin) { return Interval{begin, begin + std::min(step, cells.end - begin)}; };
  const auto read = [&](Interval run, Slab& slab) {
    const std::span<std::byte> bytes = slab.bytes(cell_bytes(tensor.dtype(), run.size()));
    source_.read(tensor, run, bytes);
    return bytes;
  };
  if (cells.empty()) return;
  size_t current = 0;
  std::span<std::byte> bytes = read(run_at(cells.begin), slabs_[current]);
  for (Interval run = run_at(cells.begin);; current = 1 - current) {
    if (run.end == cells.end) return use(run, bytes);
    const Interval next = run_at(run.end);
    auto ahead = std::async(std::launch::async, [&, next] { return read(next, slabs_[1 - current]); });
    use(run, bytes);
    bytes = ahead.get();
    run = next;
  }
}

}  // namespace hyper_parallel
