// What the metadata of a large checkpoint costs, and its checksums. Target: 1 000 000 chunks (2000 names, 1000 files,
// checksums and keys) are read and validated in < 2 s.

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/chunk_cover.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/crc32c_kernels.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kNames = 2000;
constexpr int64_t kChunksPerName = 500;
constexpr int64_t kFiles = 1000;
constexpr int64_t kColumns = 4096;
constexpr int64_t kFileBytes = int64_t{1} << 40;

std::string numbered(std::string_view stem, int64_t number) {
  std::string digits = std::to_string(number);
  digits.insert(0, 6 - digits.size(), '0');
  return str_cat(stem, digits);
}

/// Rows cut into `chunks`, one in each of as many files, as a ragged share is written: under a key of its own.
StoredTensor stored_in_rows(int64_t number) {
  StoredTensor tensor(numbered("model.layers.attention.weight.", number), DType::kF32, {kChunksPerName * 3, kColumns});
  for (int64_t i = 0; i < kChunksPerName; ++i) {
    const auto checksum = static_cast<uint32_t>(number * 7919 + i * 104729) * 2654435761U;
    tensor.add_chunk({{i * 3, 0}, {3, kColumns}}, (number + i) % kFiles, number * 1'000'000 + i * 49'152,
                     numbered(str_cat(tensor.name(), ".__dcp_chunk_"), i), std::vector{checksum});
  }
  return tensor;
}

CheckpointMetadata million_chunks() {
  CheckpointParts parts;
  parts.save_id = "0123456789abcdef";
  for (int64_t i = 0; i < kFiles; ++i) parts.files.push_back({numbered("data-", i), kFileBytes});
  for (int64_t i = 0; i < kNames; ++i) parts.tensors.push_back(stored_in_rows(i));
  return CheckpointMetadata(std::move(parts));
}

void parse_a_million_chunks(benchmark::State& state) {
  const std::string text = write_metadata(million_chunks());
  for (auto _ : state) benchmark::DoNotOptimize(parse_metadata(std::as_bytes(std::span(text)), "benchmark"));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}
BENCHMARK(parse_a_million_chunks)->Unit(benchmark::kMillisecond);

void write_a_million_chunks(benchmark::State& state) {
  const CheckpointMetadata metadata = million_chunks();
  size_t bytes = 0;
  for (auto _ : state) benchmark::DoNotOptimize(bytes = write_metadata(metadata).size());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}
BENCHMARK(write_a_million_chunks)->Unit(benchmark::kMillisecond);

/// `state.range(0)` boxes that all span dim 0.
void tiling_of_columns(benchmark::State& state) {
  const int64_t columns = state.range(0);
  const auto column = [](int64_t i) { return Box{{0, i, 0}, {64, 1, 8}}; };
  for (auto _ : state) benchmark::DoNotOptimize(tiling_fault({64, columns, 8}, columns, column));
}
BENCHMARK(tiling_of_columns)->Arg(100'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

/// The same with one column missing, which is found.
void fault_among_columns(benchmark::State& state) {
  const int64_t columns = state.range(0);
  const auto column = [columns](int64_t i) { return Box{{0, i == columns / 3 ? 0 : i, 0}, {64, 1, 8}}; };
  for (auto _ : state) benchmark::DoNotOptimize(tiling_fault({64, columns, 8}, columns, column));
}
BENCHMARK(fault_among_columns)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void checksum_of(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<size_t>(state.range(0)), std::byte{0x5A});
  for (auto _ : state) benchmark::DoNotOptimize(crc32c(bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(checksum_of)->Arg(64)->Arg(4096)->Arg(kBlockBytes)->Arg(64 * kBlockBytes);

/// By kernel number `state.range(0)` of this processor, 0 the fastest.
void checksum_of_a_block_by(benchmark::State& state) {
  const std::vector<crc32c_kernels::Kernel> kernels = crc32c_kernels::available();
  const auto kernel = static_cast<size_t>(state.range(0));
  if (kernel >= kernels.size()) {
    state.SkipWithError("this processor has fewer kernels");
    return;
  }
  const std::vector<std::byte> bytes(static_cast<size_t>(kBlockBytes), std::byte{0x5A});
  for (auto _ : state) benchmark::DoNotOptimize(kernels[kernel](0, bytes));
  state.SetBytesProcessed(state.iterations() * kBlockBytes);
}
BENCHMARK(checksum_of_a_block_by)->DenseRange(0, 2);

}  // namespace
}  // namespace hyper_parallel
