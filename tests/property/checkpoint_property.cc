// Checkpoints of any layouts, saved by one number of ranks and loaded by another, against the element-by-element truth.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/file_system_reader.h"
#include "hyper_parallel/checkpoint/file_system_writer.h"
#include "hyper_parallel/checkpoint/load.h"
#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "hyper_parallel/checkpoint/save.h"
#include "tests/property/cells.h"
#include "tests/property/random_cases.h"
#include "tests/reference/from_layout.h"
#include "tests/support/buffer_planners.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_exchange.h"

namespace hyper_parallel::test {
namespace {

using reference::owned_elements;
using reference::Scheme;
using reference::scheme_of;

/// A tensor that is saved under one layout and loaded under another, on another mesh of another size.
struct Resharding {
  Layout source;
  Layout target;
  Dims shape;
  DType dtype = DType::kF32;

  Scheme source_scheme() const { return scheme_of(source, shape.to_vector()); }
  Scheme target_scheme() const { return scheme_of(target, shape.to_vector()); }
  int64_t element_bytes() const { return bits_per_element(dtype) / 8; }
};

std::ostream& operator<<(std::ostream& out, const Resharding& tensor) {
  return out << "shape " << tuple_text(tensor.shape) << " of " << tensor.dtype << ", " << to_string(tensor.source)
             << " -> " << to_string(tensor.target);
}

Resharding draw_resharding() {
  const Dims shape = draw_shape();
  Layout source = draw_layout_without_partial(draw_mesh(), shape);
  Layout target = draw_layout_without_partial(draw_mesh(), shape);
  return {std::move(source), std::move(target), shape, draw_of<DType>({DType::kI16, DType::kF32, DType::kI64})};
}

std::vector<Resharding> draw_reshardings() {
  std::vector<Resharding> tensors;
  for (int64_t left = draw(1, 3); left > 0; --left) tensors.push_back(draw_resharding());
  return tensors;
}

std::string name_of(size_t tensor) { return str_cat("tensor.", tensor); }

/// How many ranks a job has that holds all the meshes; some of them may be in none.
int64_t job_size(const std::vector<Resharding>& tensors, Layout Resharding::* layout) {
  int64_t size = 1;
  for (const Resharding& tensor : tensors) {
    size = std::max(size, 1 + std::ranges::max((tensor.*layout).mesh().ranks()));
  }
  return size;
}

/// What the rank owns of a tensor under a layout; nothing outside the mesh.
Region owned_region(const Layout& layout, const Dims& shape, int64_t rank) {
  const auto coordinate = layout.mesh().coordinate(rank);
  return coordinate ? Distribution(layout, shape).owned(*coordinate) : Region{whole_box(shape), {0, 0}};
}

/// The values of elements, as many bytes each: no two elements of the case have the same.
std::string bytes_of_elements(const std::vector<int64_t>& elements, size_t tensor, int64_t element_bytes) {
  std::string bytes;
  for (const int64_t element : elements) {
    const int64_t number = element + 1 + 1000 * static_cast<int64_t>(tensor);
    bytes.append(reinterpret_cast<const char*>(&number), static_cast<size_t>(std::min<int64_t>(element_bytes, 8)));
  }
  return bytes;
}

BufferSavePlanner save_planner(const std::vector<Resharding>& tensors, int64_t rank) {
  BufferSavePlanner planner;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Resharding& tensor = tensors[i];
    planner.add(planned_tensor(name_of(i), tensor.dtype, tensor.shape, owned_region(tensor.source, tensor.shape, rank)),
                bytes_of_elements(owned_elements(tensor.source_scheme(), rank), i, tensor.element_bytes()));
  }
  return planner;
}

std::vector<LoadTarget> load_targets(const std::vector<Resharding>& tensors, int64_t rank) {
  std::vector<LoadTarget> targets;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Resharding& tensor = tensors[i];
    targets.push_back(
        load_target(name_of(i), tensor.dtype, tensor.shape, owned_region(tensor.target, tensor.shape, rank)));
  }
  return targets;
}

/// The metadata of a checkpoint of these tensors, without a storage: chunks lie one after the other in one file.
CheckpointMetadata metadata_of(const std::vector<Resharding>& tensors) {
  std::vector<SavePlan> plans;
  for (int64_t rank = 0; rank < job_size(tensors, &Resharding::source); ++rank) {
    plans.push_back(save_planner(tensors, rank).plan);
  }
  std::map<std::string, StoredTensor> stored;
  int64_t begin = 0;
  for (const SavePlan& plan : unite_save_plans(plans).assigned) {
    for (const PlannedTensor& tensor : plan.tensors) {
      StoredTensor& chunks =
          stored.try_emplace(tensor.name, StoredTensor(tensor.name, tensor.dtype, tensor.shape)).first->second;
      for (size_t box = 0; box < tensor.boxes.size(); ++box) {
        const int64_t bytes = WriteItem{&tensor, box}.bytes();
        chunks.add_chunk(tensor.boxes[box], 0, begin, "",
                         std::vector<uint32_t>(static_cast<size_t>(block_count(bytes))));
        begin += bytes;
      }
    }
  }
  CheckpointParts parts{"0123456789abcdef", {{"data", begin}}, {}, {}, {}};
  for (auto& [name, tensor] : stored) parts.tensors.push_back(std::move(tensor));
  return CheckpointMetadata(std::move(parts));
}

/// For each target of the plan, which cell of the tensor is put to each place of the local storage. Fails if a place is
/// written twice or not at all.
std::vector<Cells> planned_cells(const CheckpointMetadata& metadata, const LoadPlan& plan) {
  std::vector<Cells> cells;
  for (const LoadTarget& target : plan.targets) {
    cells.emplace_back(static_cast<size_t>(elements_before(target.boxes, target.boxes.size())), -1);
  }
  for (const ReadItem& item : plan.items) {
    const LoadTarget& target = plan.targets.at(static_cast<size_t>(item.target));
    const Box chunk = metadata.tensors().at(static_cast<size_t>(item.tensor)).chunk_box(item.chunk);
    const Cells in_chunk = cells_of(chunk, target.shape);
    const Cells sources = places_of(view_in_chunk(item, chunk));
    const Cells places = places_of(view_in_target(item, target));
    RC_ASSERT(sources.size() == places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      int64_t& cell = cells[static_cast<size_t>(item.target)].at(static_cast<size_t>(places[i]));
      RC_ASSERT(cell == -1);
      cell = in_chunk.at(static_cast<size_t>(sources[i]));
    }
  }
  for (const Cells& of_target : cells) RC_ASSERT(std::ranges::count(of_target, -1) == 0);
  return cells;
}

bool is_in_disk_order(const CheckpointMetadata& metadata, const LoadPlan& plan) {
  return std::ranges::is_sorted(plan.items, {}, [&](const ReadItem& item) {
    const StoredChunk chunk = metadata.tensors()[static_cast<size_t>(item.tensor)].chunk(item.chunk);
    return std::tuple(chunk.file, chunk.begin, item.overlap.offsets.to_vector());
  });
}

TEST(CheckpointPlan, OfAnyLayouts_StoresEachByteOnce) {
  check_property(3000, [] {
    const std::vector<Resharding> tensors = *drawn(draw_reshardings);
    const CheckpointMetadata metadata = metadata_of(tensors);  // its chunks tile each tensor, or this throws
    RC_ASSERT(metadata.tensors().size() == tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const StoredTensor& stored = *metadata.find_tensor(name_of(i));
      Cells cells;
      for (int64_t chunk = 0; chunk < stored.chunk_count(); ++chunk) {
        const Cells of_chunk = cells_of(stored.chunk_box(chunk), stored.shape());
        cells.insert(cells.end(), of_chunk.begin(), of_chunk.end());
      }
      std::ranges::sort(cells);
      Cells all(static_cast<size_t>(count_cells(tensors[i].shape)));
      std::iota(all.begin(), all.end(), int64_t{0});
      RC_ASSERT(cells == all);
    }
  });
}

TEST(CheckpointPlan, OfAnyLoad_TouchesEachNeededCellOnce) {
  check_property(3000, [] {
    const std::vector<Resharding> tensors = *drawn(draw_reshardings);
    const CheckpointMetadata metadata = metadata_of(tensors);
    for (int64_t rank = 0; rank < job_size(tensors, &Resharding::target); ++rank) {
      const LoadPlan plan = plan_load(metadata, load_targets(tensors, rank), {});
      RC_ASSERT(is_in_disk_order(metadata, plan));
      const std::vector<Cells> cells = planned_cells(metadata, plan);
      for (size_t i = 0; i < tensors.size(); ++i) {
        RC_ASSERT(cells.at(i) == owned_elements(tensors[i].target_scheme(), rank));
      }
    }
  });
}

TEST(CheckpointPlan, MadeTwice_IsEqual) {
  check_property(500, [] {
    const std::vector<Resharding> tensors = *drawn(draw_reshardings);
    RC_ASSERT(metadata_of(tensors) == metadata_of(tensors));
  });
}

/// Saves with as many thread ranks as the source meshes need.
void save(const std::vector<Resharding>& tensors, const std::filesystem::path& directory) {
  run_ranks(job_size(tensors, &Resharding::source), [&](Exchange& exchange) {
    BufferSavePlanner planner = save_planner(tensors, exchange.rank());
    FileSystemWriter writer(directory);
    NoProgress progress;
    save_checkpoint(exchange, planner, writer, progress);
  });
}

/// Loads with as many thread ranks as the target meshes need: of each rank the tensors' local storages.
std::vector<std::vector<std::string>> load(const std::vector<Resharding>& tensors,
                                           const std::filesystem::path& directory) {
  const int64_t size = job_size(tensors, &Resharding::target);
  std::vector<std::vector<std::string>> loaded(static_cast<size_t>(size));
  run_ranks(size, [&](Exchange& exchange) {
    BufferLoadPlanner planner;
    for (LoadTarget& target : load_targets(tensors, exchange.rank())) planner.add(std::move(target));
    FileSystemReader reader(directory);
    NoProgress progress;
    load_checkpoint(exchange, planner, reader, {}, progress);
    loaded[static_cast<size_t>(exchange.rank())] = std::move(planner.buffers);
  });
  return loaded;
}

/// The bytes of data in the directory's safetensors files.
int64_t data_bytes(const std::filesystem::path& directory) {
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    if (file.path().extension() == ".safetensors") bytes += SafetensorsFile(file.path()).header().data_size();
  }
  return bytes;
}

TEST(Checkpoint, OfAnyLayouts_LoadsUnderAnyOtherBitForBit) {
  check_property(150, [] {
    const std::vector<Resharding> tensors = *drawn(draw_reshardings);
    const TemporaryFolder folder;
    save(tensors, folder.path());
    int64_t bytes = 0;
    for (const Resharding& tensor : tensors) bytes += count_cells(tensor.shape) * tensor.element_bytes();
    RC_ASSERT(data_bytes(folder.path()) == bytes);
    const auto loaded = load(tensors, folder.path());
    for (size_t rank = 0; rank < loaded.size(); ++rank) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        const std::vector<int64_t> elements = owned_elements(tensors[i].target_scheme(), static_cast<int64_t>(rank));
        RC_ASSERT(loaded[rank].at(i) == bytes_of_elements(elements, i, tensors[i].element_bytes()));
      }
    }
  });
}

}  // namespace
}  // namespace hyper_parallel::test
