#include "hyper_parallel/tools/checkpoint_source.h"

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/chunk_reader.h"
#include "hyper_parallel/checkpoint/load_plan.h"
#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/tools/safetensors_reader.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kBitsPerByte = 8;

LoadTarget cells_target(const StoredTensor& tensor, Interval cells) {
  return load_target(tensor.name(), tensor.dtype(), tensor.shape(), {whole_box(tensor.shape()), cells});
}

Delivery make_delivery(const ReadItem& item, const LoadTarget& target, const StoredChunk& chunk, int64_t bits,
                       std::span<std::byte> out) {
  return {ViewCursor(byte_view(view_in_chunk(item, chunk.box), bits)),
          ViewCursor(byte_view(view_in_target(item, target), bits)), out};
}

}  // namespace

int64_t tensor_bytes(const CheckpointMetadata& metadata) {
  int64_t bytes = 0;
  for (const StoredTensor& tensor : metadata.tensors()) bytes = checked_add(bytes, tensor.bytes());
  return bytes;
}

CheckpointSource::CheckpointSource(std::filesystem::path directory)
    : CheckpointSource(OpenedCheckpoint(std::move(directory))) {}

CheckpointSource::CheckpointSource(OpenedCheckpoint opened) : opened_(std::move(opened)) {
  for (int64_t file = 0; file < std::ssize(metadata().files()); ++file) open(file);
}

FileDescriptor CheckpointSource::open(int64_t file) const {
  const StoredFile& stored = metadata().files()[static_cast<size_t>(file)];
  std::optional<FileDescriptor> opened = opened_.open(file);
  if (!opened.has_value()) opened_.check_not_replaced(file);
  HP_CHECK(opened.has_value(), kDataLoss, "checkpoint file ", opened_.quoted(file), " is missing");
  const int64_t bytes = file_size(*opened, opened_.quoted(file));
  HP_CHECK(bytes == stored.bytes, kDataLoss, "checkpoint file ", opened_.quoted(file), " has ", bytes,
           " bytes but the metadata says ", stored.bytes);
  return std::move(*opened);
}

void CheckpointSource::read(const StoredTensor& tensor, Interval cells, std::span<std::byte> out) {
  HP_DCHECK(static_cast<int64_t>(out.size()) == cell_bytes(tensor.dtype(), cells.size()));
  if (cells.empty()) return;
  const LoadPlan plan = plan_load(metadata(), {cells_target(tensor, cells)}, {});
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
    const FileDescriptor file = open(chunk.file);
    read_chunk({reads_from(file.get()), opened_.quoted(chunk.file), tensor.name(), chunk}, std::move(deliveries),
               block_, quiet);
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
