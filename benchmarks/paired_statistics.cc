#include "benchmarks/paired_statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel::benchmarks {
namespace {

/// The value a `fraction` of the way through the sorted values.
double quantile(const std::vector<double>& sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

Quartiles quartiles(std::vector<double> values) {
  HP_CHECK(!values.empty(), kInvalidArgument, "quartiles: there are no values");
  std::ranges::sort(values);
  return {quantile(values, 0.25), quantile(values, 0.5), quantile(values, 0.75)};
}

Quartiles ratio_quartiles(const std::vector<double>& numerators, const std::vector<double>& denominators) {
  HP_CHECK(numerators.size() == denominators.size(), kInvalidArgument, "ratio_quartiles: ", numerators.size(),
           " numerators but ", denominators.size(), " denominators");
  std::vector<double> ratios(numerators.size());
  std::ranges::transform(numerators, denominators, ratios.begin(), std::divides<>());
  return quartiles(std::move(ratios));
}

Quartiles goal_ratio(const Goal& goal, const PairedTimes& times) {
  return goal.kind == Goal::Kind::kFaster ? ratio_quartiles(times.baseline, times.ours)
                                          : ratio_quartiles(times.ours, times.baseline);
}

bool reaches(const Goal& goal, double ratio) {
  switch (goal.kind) {
    case Goal::Kind::kAtMost:
      return ratio <= goal.bound;
    case Goal::Kind::kFaster:
      return ratio >= goal.bound;
    case Goal::Kind::kEqual:
      return ratio == 1;
  }
  raise(ErrorCode::kInternal, "Goal::Kind has no such value");
}

}  // namespace hyper_parallel::benchmarks
