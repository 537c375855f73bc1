#include "hyper_parallel/tools/sweep_writer.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/data_file.h"
#include "hyper_parallel/geometry/interval_boxes.h"
#include "hyper_parallel/geometry/region.h"
#include "hyper_parallel/geometry/view_cursor.h"
#include "hyper_parallel/tools/box_order.h"

namespace hyper_parallel {
namespace {

/// The slab under the sweep.
struct Slab {
  const StoredTensor& tensor;
  Interval cells;  // of the tensor's row-major order
  std::span<const std::byte> bytes;
};

/// Appends cells [run.begin, run.end) of `box`, all of them in the slab, packing through `buffer` what lies apart.
void append_cells(DataFile& file, const Slab& slab, const Box& box, Interval run, std::span<std::byte> buffer) {
  const Dims strides = row_major_strides(slab.tensor.shape());
  size_t filled = 0;
  for (const IntervalBox& piece : interval_to_boxes(box.sizes, run)) {
    int64_t offset = -slab.cells.begin;
    for (size_t dim = 0; dim < box.ndim(); ++dim) {
      offset += (box.offsets[dim] + piece.box.offsets[dim]) * strides[dim];
    }
    const StridedView view = collapsed_view(offset, piece.box.sizes, strides);
    for (ViewCursor cursor(byte_view(view, bits_per_element(slab.tensor.dtype()))); !cursor.done();) {
      const auto bytes = slab.bytes.subspan(static_cast<size_t>(cursor.position()), static_cast<size_t>(cursor.run()));
      if (filled + bytes.size() > buffer.size()) {
        file.append(buffer.first(filled));
        filled = 0;
      }
      if (bytes.size() > buffer.size() / 4) {  // long enough to need no packing
        file.append(buffer.first(std::exchange(filled, 0)));
        file.append(bytes);
      } else {
        std::memcpy(buffer.data() + filled, bytes.data(), bytes.size());
        filled += bytes.size();
      }
      cursor.advance(cursor.run());
    }
  }
  file.append(buffer.first(filled));
}

/// One data file under the sweep.
class Target {
 public:
  Target(const CheckpointMetadata& metadata, const std::filesystem::path& directory, const SweepFile& file)
      : metadata_(metadata), plan_(file), file_(directory / file.name, data_chunks(metadata, file)) {}

  bool done() const { return next_ == file_.order().size(); }
  /// The tensor of the next chunk.
  int64_t tensor() const { return chunk().tensor; }

  /// The cells of the tensor's row-major order from the next one that the file takes to the end of the last chunk that
  /// the same sweep can give it.
  Interval wanted() const {
    Interval wanted = hull(chunk());
    for (size_t i = next_ + 1; i < file_.order().size(); ++i) {
      const SweepChunk& later = plan_.chunks[file_.order()[i]];
      if (later.tensor != tensor() || hull(later).begin < wanted.end) break;
      wanted.end = hull(later).end;
    }
    return wanted;
  }

  /// Takes from the slab what comes next in the file. Returns the bytes taken.
  int64_t take(const Slab& slab, std::span<std::byte> buffer) {
    int64_t taken = 0;
    while (!done() && &tensor_of(chunk()) == &slab.tensor) {
      const Box& box = chunk().box;
      const Dims& shape = slab.tensor.shape();
      const int64_t begin = cells_before(box, shape, slab.cells.begin);
      const Interval run{cells_done_, cells_before(box, shape, slab.cells.end)};
      if (begin > cells_done_ || run.end <= cells_done_) break;  // its next cell is not in this slab
      append_cells(file_, slab, box, run, buffer);
      taken += cell_bytes(slab.tensor.dtype(), run.size());
      cells_done_ = run.end;
      if (run.end < box.numel()) break;
      ++next_;
      cells_done_ = 0;
    }
    return taken;
  }

  CheckpointParts finish() {
    const WrittenFile written = file_.finish();
    CheckpointParts parts;
    parts.files = {{plan_.name, written.bytes}};
    for (size_t i = 0; i < plan_.chunks.size(); ++i) {
      const StoredTensor& source = tensor_of(plan_.chunks[i]);
      if (parts.tensors.empty() || parts.tensors.back().name() != source.name()) {
        parts.tensors.emplace_back(source.name(), source.dtype(), source.shape());
      }
      const WrittenChunk& chunk = written.chunks[i];
      const std::string_view key = chunk.key == source.name() ? std::string_view() : chunk.key;
      parts.tensors.back().add_chunk(plan_.chunks[i].box, 0, chunk.begin, key, chunk.checksums);
    }
    return parts;
  }

 private:
  static std::vector<DataChunk> data_chunks(const CheckpointMetadata& metadata, const SweepFile& file) {
    std::vector<DataChunk> chunks;
    for (const SweepChunk& chunk : file.chunks) {
      const StoredTensor& tensor = metadata.tensors()[static_cast<size_t>(chunk.tensor)];
      chunks.push_back({tensor.name(), tensor.dtype(), chunk.box.sizes});
    }
    return chunks;
  }

  const SweepChunk& chunk() const { return plan_.chunks[file_.order()[next_]]; }
  const StoredTensor& tensor_of(const SweepChunk& chunk) const {
    return metadata_.tensors()[static_cast<size_t>(chunk.tensor)];
  }
  Interval hull(const SweepChunk& chunk) const { return flat_hull(region_of(chunk.box), tensor_of(chunk).shape()); }

  const CheckpointMetadata& metadata_;
  const SweepFile& plan_;
  DataFile file_;
  size_t next_ = 0;         // in the file's order
  int64_t cells_done_ = 0;  // of that chunk
};

/// The place of each tensor in the order in which files name them, but for keys with numbers.
std::vector<int64_t> sweep_positions(const CheckpointMetadata& metadata) {
  std::vector<int64_t> order(metadata.tensors().size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  const auto dtype = [&](int64_t i) { return metadata.tensors()[static_cast<size_t>(i)].dtype(); };
  // By descending dtype; the tensors are sorted by name already.
  std::ranges::sort(order, [&](int64_t a, int64_t b) { return dtype(a) != dtype(b) ? dtype(a) > dtype(b) : a < b; });
  std::vector<int64_t> positions(order.size());
  for (size_t i = 0; i < order.size(); ++i) positions[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return positions;
}

/// Flushes the files side by side: each flush waits for the disk, which does many at a time in little more time than
/// one.
std::vector<CheckpointParts> finish_together(const std::vector<std::unique_ptr<Target>>& targets) {
  constexpr size_t kTogether = 32;
  std::vector<CheckpointParts> parts;
  for (size_t first = 0; first < targets.size(); first += kTogether) {
    std::vector<std::future<CheckpointParts>> flushes;
    for (size_t i = first; i < std::min(first + kTogether, targets.size()); ++i) {
      flushes.push_back(std::async(std::launch::async, [&targets, i] { return targets[i]->finish(); }));
    }
    for (auto& flush : flushes) parts.push_back(flush.get());
  }
  return parts;
}

}  // namespace

std::vector<CheckpointParts> sweep_into_files(const CheckpointMetadata& metadata, SlabReader& slabs,
                                              const std::filesystem::path& directory,
                                              const std::vector<SweepFile>& files, Progress& progress) {
  std::vector<std::unique_ptr<Target>> targets;
  for (const SweepFile& file : files) targets.push_back(std::make_unique<Target>(metadata, directory, file));
  const std::vector<int64_t> positions = sweep_positions(metadata);
  const auto position = [&](const Target* target) { return positions[static_cast<size_t>(target->tensor())]; };
  std::vector<std::byte> buffer(kBlockBytes);
  std::vector<Target*> waiting;
  for (const auto& target : targets) waiting.push_back(target.get());
  while (std::erase_if(waiting, [](const Target* target) { return target->done(); }), !waiting.empty()) {
    const int64_t tensor = (*std::ranges::min_element(waiting, {}, position))->tensor();
    std::vector<Target*> served;
    Interval wanted{std::numeric_limits<int64_t>::max(), 0};
    for (Target* target : waiting) {
      if (target->tensor() != tensor) continue;
      served.push_back(target);
      wanted = {std::min(wanted.begin, target->wanted().begin), std::max(wanted.end, target->wanted().end)};
    }
    const StoredTensor& stored = metadata.tensors()[static_cast<size_t>(tensor)];
    slabs.stream(stored, wanted, [&](Interval cells, std::span<const std::byte> bytes) {
      for (Target* target : served) progress.advance(target->take({stored, cells, bytes}, buffer));
    });
  }
  return finish_together(targets);
}

}  // namespace hyper_parallel
