// What planning costs, without any communication. Targets: a plan for one of 16 384 ranks < 1 ms cold and < 2 us for
// layouts already constructed; interval to boxes < 1 us.

#include <benchmark/benchmark.h>

#include <vector>

#include "hyper_parallel/geometry/interval_boxes.h"
#include "hyper_parallel/redistribute/message_traffic.h"
#include "hyper_parallel/redistribute/plan_cache.h"
#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/redistribute/traffic.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kRanks = 16384;
constexpr int64_t kRank = kRanks / 2 + 3;

/// Uneven units with zeros: i * factor mod divisor.
std::vector<int64_t> uneven_units(int64_t ranks, int64_t factor, int64_t divisor) {
  std::vector<int64_t> units(static_cast<size_t>(ranks));
  for (int64_t i = 0; i < ranks; ++i) units[static_cast<size_t>(i)] = i * factor % divisor;
  return units;
}

struct RaggedPair {
  explicit RaggedPair(int64_t ranks)
      : mesh({ranks}),
        source(mesh, {RaggedShard({0}, uneven_units(ranks, 1, 5))}),
        target(mesh, {RaggedShard({0}, uneven_units(ranks, 7, 4))}),
        shape{source.ragged_shard()->placement.total_units() * target.ragged_shard()->placement.total_units(), 16} {}

  DeviceMesh mesh;
  Layout source;
  Layout target;
  Dims shape;
};

void plan_cold(benchmark::State& state) {
  const Dims shape = RaggedPair(kRanks).shape;
  for (auto _ : state) {
    const RaggedPair pair(kRanks);
    benchmark::DoNotOptimize(rank_plan(plan_redistribution(pair.source, pair.target, shape), kRank));
  }
}
BENCHMARK(plan_cold)->Unit(benchmark::kMicrosecond);

void plan_warm(benchmark::State& state) {
  const RaggedPair pair(kRanks);
  for (auto _ : state) {
    benchmark::DoNotOptimize(rank_plan(plan_redistribution(pair.source, pair.target, pair.shape), kRank));
  }
}
BENCHMARK(plan_warm);

void plan_cached(benchmark::State& state) {
  const RaggedPair pair(kRanks);
  PlanCache cache(16);
  for (auto _ : state) benchmark::DoNotOptimize(cache.get(pair.source, pair.target, pair.shape, kRank));
}
BENCHMARK(plan_cached);

void traffic_of_all_ranks(benchmark::State& state) {
  const RaggedPair pair(state.range(0));
  const Plan plan = plan_redistribution(pair.source, pair.target, pair.shape);
  for (auto _ : state) {
    benchmark::DoNotOptimize(mesh_traffic(plan));
    benchmark::DoNotOptimize(message_traffic(plan));
  }
}
BENCHMARK(traffic_of_all_ranks)->Arg(kRanks)->Arg(100'000)->Unit(benchmark::kMillisecond);

void boxes_of_worst_interval(benchmark::State& state) {
  const Dims shape{7, 8, 9, 10};
  const Interval interval{1, whole_box(shape).numel() - 1};  // starts and ends in the middle of a row: 2 * 4 - 1 boxes
  for (auto _ : state) benchmark::DoNotOptimize(interval_to_boxes(shape, interval));
}
BENCHMARK(boxes_of_worst_interval);

void shard_to_shard_on_64_ranks(benchmark::State& state) {
  const DeviceMesh mesh({64});
  const Layout source(mesh, {Shard(0)});
  const Layout target(mesh, {Shard(1)});
  for (auto _ : state) {
    benchmark::DoNotOptimize(rank_plan(plan_redistribution(source, target, {4096, 4096}), 31));
  }
}
BENCHMARK(shard_to_shard_on_64_ranks)->Unit(benchmark::kMicrosecond);

void partial_to_replicate_on_8_by_8(benchmark::State& state) {
  const DeviceMesh mesh({8, 8});
  const Layout source(mesh, {Partial(), Partial()});
  const Layout target(mesh, {Replicate{}, Replicate{}});
  for (auto _ : state) {
    benchmark::DoNotOptimize(rank_plan(plan_redistribution(source, target, {4096, 4096}), 31));
  }
}
BENCHMARK(partial_to_replicate_on_8_by_8)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hyper_parallel
