#pragma once

// A row of the report, and how the rows of each kind come about.
//
// All ranks of the group run each row's code, and all get its figures.

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/bench_collectives/options.h"
#include "benchmarks/bench_collectives/ranks.h"
#include "benchmarks/paired_statistics.h"

namespace hyper_parallel::benchmarks {

enum class Unit { kSeconds, kBytes };

struct Row {
  std::string what;
  std::string baseline;
  Unit unit = Unit::kSeconds;
  double ours = 0;                      // the median, in `unit`
  double theirs = 0;                    // likewise, of the baseline
  Quartiles ratio = {};                 // in the sense of the goal
  std::optional<Quartiles> noise = {};  // the A/A ratio: the baseline against itself
  Goal goal = {};
  bool reached = false;
};

/// One figure still to be found: its texts, and the code that finds it.
struct Figure {
  std::string what;
  std::string baseline;
  std::function<Row()> run;
};

/// How the results of the two sides compare before they are timed.
enum class Results {
  kEqual,      // bit for bit
  kUnrelated,  // the baseline only moves as many bytes
};

/// Two sides to be timed. Each returns its result, which is let go when the clock has stopped.
struct Comparison {
  std::string what;
  std::string baseline;
  Goal goal;
  std::function<at::Tensor()> ours = {};
  std::function<at::Tensor()> theirs = {};
  Results results = Results::kEqual;
};

/// The figure of a comparison: checks that the results are equal, then times pairs. The time of a side is that of the
/// slowest rank, from a barrier to the result. Throws kInternal where the results differ.
Figure timed(const Ranks& ranks, int64_t pairs, Comparison comparison);

/// The row of a figure that is counted instead of timed: bytes of all ranks together.
Row bytes_row(std::string what, std::string baseline, Goal goal, int64_t ours, int64_t theirs);

/// The variable all-gather between 4 ranks against padding.
std::vector<Figure> four_rank_gather_figures(const Ranks& ranks, const Options& options);
/// The variable all-gather between 2 ranks against what c10d does at best.
std::vector<Figure> gather_figures(const Ranks& ranks, const Options& options);
/// The variable reduce-scatter, as the all-gather's backward and as a redistribution.
std::vector<Figure> reduce_figures(const Ranks& ranks, const Options& options);
/// Redistributions between shards, ragged and not.
std::vector<Figure> exchange_figures(const Ranks& ranks, const Options& options);
/// Bytes received against the least possible, on meshes of 4 ranks.
std::vector<Figure> traffic_figures(const Ranks& ranks);

}  // namespace hyper_parallel::benchmarks
