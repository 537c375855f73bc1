#pragma once

// Checkpoint directories for tests, put together and taken apart cell by cell, without the planners and readers.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/data_file.h"
#include "hyper_parallel/checkpoint/file_system_writer.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/written_parts.h"
#include "tests/support/cells.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {

/// A tensor, its bytes, and the boxes that each rank stores.
struct TestTensor {
  std::string name;
  DType dtype = DType::kF32;
  Dims shape;
  std::string bytes;
  std::vector<std::pair<int64_t, Box>> chunks;  // rank and box
};

struct TestCheckpoint {
  std::vector<TestTensor> tensors;
  std::vector<NamedValue> values;
  Value structure;
  std::string save_id = "00000000000000aa";
};

/// The bytes of 0, 1, 2, .. as elements of type T.
template <typename T>
std::string counting_bytes(int64_t count, T first = T{}) {
  std::vector<T> elements(static_cast<size_t>(count));
  std::iota(elements.begin(), elements.end(), first);
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

/// A tensor of float32 that counts its cells.
inline TestTensor counting_tensor(std::string name, Dims shape, std::vector<std::pair<int64_t, Box>> chunks) {
  const auto count = static_cast<int64_t>(all_cells(shape).size());
  return {std::move(name), DType::kF32, std::move(shape), counting_bytes<float>(count), std::move(chunks)};
}

inline size_t element_bytes(DType dtype) { return static_cast<size_t>(bits_per_element(dtype) / 8); }

/// The bytes of a box of the tensor.
inline std::string box_bytes(const TestTensor& tensor, const Box& box) {
  const size_t width = element_bytes(tensor.dtype);
  std::string bytes;
  for (const int64_t cell : cells_of(box, tensor.shape)) {
    bytes += tensor.bytes.substr(static_cast<size_t>(cell) * width, width);
  }
  return bytes;
}

/// Writes the data file of one rank.
inline CheckpointParts write_rank(const std::filesystem::path& directory, const TestCheckpoint& checkpoint,
                                  int64_t rank) {
  CheckpointParts parts;
  std::vector<std::pair<const TestTensor*, const Box*>> boxes;
  std::vector<DataChunk> chunks;
  for (const TestTensor& tensor : checkpoint.tensors) {
    for (const auto& [holder, box] : tensor.chunks) {
      if (holder != rank) continue;
      boxes.emplace_back(&tensor, &box);
      chunks.push_back({tensor.name, tensor.dtype, box.sizes});
    }
  }
  const std::string name = data_file_name(checkpoint.save_id, rank);
  DataFile file(directory / name, chunks);
  for (const size_t chunk : file.order()) {
    const std::string bytes = box_bytes(*boxes[chunk].first, *boxes[chunk].second);
    file.append(std::as_bytes(std::span(bytes)));
  }
  const WrittenFile written = file.finish();
  parts.files = {{name, written.bytes}};
  for (size_t i = 0; i < boxes.size(); ++i) {
    const TestTensor& tensor = *boxes[i].first;
    if (parts.tensors.empty() || parts.tensors.back().name() != tensor.name) {
      parts.tensors.emplace_back(tensor.name, tensor.dtype, tensor.shape);
    }
    const WrittenChunk& chunk = written.chunks[i];
    const std::string key = chunk.key == tensor.name ? "" : chunk.key;
    parts.tensors.back().add_chunk(*boxes[i].second, 0, chunk.begin, key, chunk.checksums);
  }
  return parts;
}

/// Writes the checkpoint into `directory`, which it creates.
inline CheckpointMetadata write_checkpoint(const std::filesystem::path& directory, const TestCheckpoint& checkpoint) {
  std::filesystem::create_directories(directory);
  std::map<int64_t, CheckpointParts> ranks;
  CheckpointParts without_cells;
  for (const TestTensor& tensor : checkpoint.tensors) {
    if (tensor.chunks.empty()) without_cells.tensors.emplace_back(tensor.name, tensor.dtype, tensor.shape);
    for (const auto& [rank, box] : tensor.chunks) {
      if (!ranks.contains(rank)) ranks[rank] = write_rank(directory, checkpoint, rank);
    }
  }
  std::vector<CheckpointParts> parts = {std::move(without_cells)};
  for (auto& [rank, of_rank] : ranks) parts.push_back(std::move(of_rank));
  CheckpointParts united = unite_parts(std::move(parts));
  united.save_id = checkpoint.save_id;
  united.values = checkpoint.values;
  united.structure = checkpoint.structure;
  CheckpointMetadata metadata(std::move(united));
  write_file(directory / kMetadataFile, write_metadata(metadata));
  return metadata;
}

inline CheckpointMetadata metadata_of(const std::filesystem::path& directory) {
  const std::string text = read_file(directory / kMetadataFile);
  return parse_metadata(std::as_bytes(std::span(text)), "test");
}

/// The bytes of a whole tensor, put together chunk by chunk.
inline std::string stored_bytes(const std::filesystem::path& directory, const std::string& name) {
  const CheckpointMetadata metadata = metadata_of(directory);
  const StoredTensor& tensor = *metadata.find_tensor(name);
  const size_t width = element_bytes(tensor.dtype());
  std::string bytes(static_cast<size_t>(tensor.bytes()), '\0');
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) {
    const StoredChunk chunk = tensor.chunk(i);
    const std::string file = read_file(directory / metadata.files()[static_cast<size_t>(chunk.file)].name);
    size_t at = static_cast<size_t>(chunk.begin);
    for (const int64_t cell : cells_of(chunk.box, tensor.shape())) {
      bytes.replace(static_cast<size_t>(cell) * width, width, file.substr(at, width));
      at += width;
    }
  }
  return bytes;
}

/// Whether the directory is as a save that failed leaves a new one: with the lock's file and nothing else.
inline bool holds_lock_alone(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename());
  return names == std::vector<std::filesystem::path>{".save.lock"};
}

/// Turns over the bits of one byte of a file.
inline void damage_byte(const std::filesystem::path& path, int64_t at) {
  std::string text = read_file(path);
  text[static_cast<size_t>(at)] = static_cast<char>(~text[static_cast<size_t>(at)]);
  write_file(path, text);
}

}  // namespace hyper_parallel
