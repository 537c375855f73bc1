#include "benchmarks/bench_collectives/row.h"

#include <ATen/ops/equal.h>

#include <chrono>
#include <utility>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel::benchmarks {
namespace {

constexpr int64_t kWarmUpPairs = 3;

using Side = std::function<at::Tensor()>;

/// Seconds from a barrier to the result, on the slowest rank.
double seconds_of(const Ranks& ranks, const Side& side) {
  using Clock = std::chrono::steady_clock;
  ranks.barrier();
  const Clock::time_point start = Clock::now();
  const at::Tensor result = side();
  const double own = std::chrono::duration<double>(Clock::now() - start).count();
  return ranks.max(own);
}

/// The sides in turn, forwards and backwards, so that each is first and last equally often.
PairedTimes time_pairs(const Ranks& ranks, int64_t pairs, const Comparison& comparison) {
  PairedTimes times;
  for (int64_t pair = -kWarmUpPairs; pair < pairs; ++pair) {
    double ours = 0;
    double baseline = 0;
    double again = 0;
    if (pair % 2 == 0) {
      ours = seconds_of(ranks, comparison.ours);
      baseline = seconds_of(ranks, comparison.theirs);
      again = seconds_of(ranks, comparison.theirs);
    } else {
      again = seconds_of(ranks, comparison.theirs);
      baseline = seconds_of(ranks, comparison.theirs);
      ours = seconds_of(ranks, comparison.ours);
    }
    if (pair < 0) continue;
    times.ours.push_back(ours);
    times.baseline.push_back(baseline);
    times.baseline_again.push_back(again);
  }
  return times;
}

void check_results(const Comparison& comparison) {
  const at::Tensor ours = comparison.ours().flatten();
  const at::Tensor theirs = comparison.theirs().flatten();
  HP_CHECK(ours.numel() == theirs.numel(), kInternal, comparison.what, ": the result has ", ours.numel(),
           " elements but that of ", comparison.baseline, " has ", theirs.numel());
  HP_CHECK(comparison.results == Results::kUnrelated || ours.equal(theirs), kInternal, comparison.what,
           ": the result differs from that of ", comparison.baseline);
}

Row run(const Ranks& ranks, int64_t pairs, const Comparison& comparison) {
  check_results(comparison);
  const PairedTimes times = time_pairs(ranks, pairs, comparison);
  Row row{.what = comparison.what, .baseline = comparison.baseline, .goal = comparison.goal};
  row.ours = quartiles(times.ours).median;
  row.theirs = quartiles(times.baseline).median;
  row.ratio = goal_ratio(comparison.goal, times);
  row.noise = ratio_quartiles(times.baseline, times.baseline_again);
  row.reached = reaches(comparison.goal, row.ratio.median);
  return row;
}

}  // namespace

Figure timed(const Ranks& ranks, int64_t pairs, Comparison comparison) {
  const std::string what = comparison.what;
  const std::string baseline = comparison.baseline;
  return {what, baseline,
          [&ranks, pairs, comparison = std::move(comparison)] { return run(ranks, pairs, comparison); }};
}

Row bytes_row(std::string what, std::string baseline, Goal goal, int64_t ours, int64_t theirs) {
  Row row{.what = std::move(what), .baseline = std::move(baseline), .unit = Unit::kBytes, .goal = goal};
  row.ours = static_cast<double>(ours);
  row.theirs = static_cast<double>(theirs);
  row.ratio = goal_ratio(goal, {{row.ours}, {row.theirs}, {row.theirs}});
  row.reached = reaches(goal, row.ratio.median);
  return row;
}

}  // namespace hyper_parallel::benchmarks
