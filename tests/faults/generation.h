#pragma once

// The states that the fault tests save: every generation has other bytes everywhere, and its number as a value.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/checkpoint/exchange.h"
#include "hyper_parallel/checkpoint/file_system_reader.h"
#include "hyper_parallel/checkpoint/file_system_writer.h"
#include "hyper_parallel/checkpoint/load.h"
#include "hyper_parallel/checkpoint/save.h"
#include "tests/support/buffer_planners.h"

namespace hyper_parallel {

inline const Dims kLargeShape{2, kBlockBytes + 1000};  // a row for each of two ranks, of two blocks
inline const Dims kRaggedShape{4, 6};                  // the first 9 cells on rank 0
inline const Dims kSharedShape{5};                     // the same on all ranks

/// `count` bytes from byte `begin` of a tensor in a generation.
inline std::string generation_bytes(int64_t generation, char tensor, int64_t begin, int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  for (int64_t i = 0; i < count; ++i) {
    bytes[static_cast<size_t>(i)] = static_cast<char>((begin + i) * 7 + (begin + i) / 253 + generation * 59 + tensor);
  }
  return bytes;
}

/// What one of `ranks` (1 or 2) ranks saves.
inline BufferSavePlanner generation_planner(int64_t generation, int64_t rank, int64_t ranks) {
  BufferSavePlanner planner;
  const int64_t row = kLargeShape[1];
  const auto bytes = [&](char tensor, int64_t begin, int64_t count) {
    return generation_bytes(generation, tensor, begin, count);
  };
  if (ranks == 1) {
    planner.add({"large", DType::kU8, kLargeShape, {whole_box(kLargeShape)}}, bytes('l', 0, 2 * row));
    planner.add({"ragged", DType::kU8, kRaggedShape, {whole_box(kRaggedShape)}}, bytes('r', 0, 24));
  } else {
    planner.add({"large", DType::kU8, kLargeShape, {{{rank, 0}, {1, row}}}}, bytes('l', rank * row, row));
    const std::vector<Box> first{{{0, 0}, {1, 6}}, {{1, 0}, {1, 3}}};
    const std::vector<Box> rest{{{1, 3}, {1, 3}}, {{2, 0}, {2, 6}}};
    planner.add({"ragged", DType::kU8, kRaggedShape, rank == 0 ? first : rest},
                rank == 0 ? bytes('r', 0, 9) : bytes('r', 9, 15));
  }
  planner.add({"shared", DType::kU8, kSharedShape, {whole_box(kSharedShape)}}, bytes('s', 0, 5));
  planner.plan.values = {{"generation", Value(generation)}};
  return planner;
}

inline void save_generation(Exchange& exchange, const std::filesystem::path& directory, int64_t generation) {
  BufferSavePlanner planner = generation_planner(generation, exchange.rank(), exchange.size());
  FileSystemWriter writer(directory);
  NoProgress progress;
  save_checkpoint(exchange, planner, writer, progress);
}

/// Loads everything in this process. Returns the generation, 0 if there is no checkpoint; throws kDataLoss if what was
/// loaded is not one generation, complete and bit for bit.
inline int64_t load_generation(const std::filesystem::path& directory) {
  BufferLoadPlanner planner;
  planner.add({"large", DType::kU8, kLargeShape, {whole_box(kLargeShape)}});
  planner.add({"ragged", DType::kU8, kRaggedShape, {whole_box(kRaggedShape)}});
  planner.add({"shared", DType::kU8, kSharedShape, {whole_box(kSharedShape)}});
  SingleExchange exchange;
  FileSystemReader reader(directory);
  NoProgress progress;
  if (!std::filesystem::exists(directory / ".metadata")) return 0;
  const CheckpointMetadata metadata = load_checkpoint(exchange, planner, reader, {{"generation"}, {}}, progress);
  const int64_t generation = std::get<int64_t>(metadata.find_value("generation")->variant());
  const BufferSavePlanner expected = generation_planner(generation, 0, 1);
  HP_CHECK(planner.buffers == expected.buffers, kDataLoss, "the loaded bytes are not those of generation ", generation);
  return generation;
}

}  // namespace hyper_parallel
