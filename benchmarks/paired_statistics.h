#pragma once

// What timings of two sides say about their ratio on a machine that is never quite quiet.
//
// The sides run alternately, pair by pair. A disturbance that lasts longer than a pair hits both sides of it, so the
// ratio is taken within each pair, and the median over pairs ignores the few that a shorter one hit. The A/A ratio, of
// one side against itself in the same run, tells how far from 1 a ratio of equal things comes out.

#include <vector>

namespace hyper_parallel::benchmarks {

struct Quartiles {
  double q1 = 0;
  double median = 0;
  double q3 = 0;
  friend bool operator==(const Quartiles&, const Quartiles&) = default;
};

/// The quartiles of `values`, of which there must be one at least, by linear interpolation between order statistics.
/// Example: of 1, 2, 3, 4 they are 1.75, 2.5 and 3.25. Throws kInvalidArgument for no values.
Quartiles quartiles(std::vector<double> values);

/// The quartiles of numerators[i] / denominators[i]. Throws kInvalidArgument for lists of unlike length or none.
Quartiles ratio_quartiles(const std::vector<double>& numerators, const std::vector<double>& denominators);

/// Element i of each list is from pair i; all in seconds.
struct PairedTimes {
  std::vector<double> ours;
  std::vector<double> baseline;
  std::vector<double> baseline_again;  // beside `baseline` in the same pair, for the A/A ratio
};

/// What a figure is to reach.
struct Goal {
  enum class Kind {
    kAtMost,  // ours / baseline <= bound
    kFaster,  // baseline / ours >= bound
    kEqual,   // ours == baseline
  };
  Kind kind = Kind::kEqual;
  double bound = 1;
};

inline Goal at_most(double bound) { return {Goal::Kind::kAtMost, bound}; }
inline Goal faster(double bound) { return {Goal::Kind::kFaster, bound}; }
inline Goal equal_to_bound() { return {Goal::Kind::kEqual, 1}; }

/// The paired ratio in the sense of the goal: baseline / ours for kFaster, else ours / baseline.
Quartiles goal_ratio(const Goal& goal, const PairedTimes& times);

/// Whether a ratio in that sense reaches the goal.
bool reaches(const Goal& goal, double ratio);

}  // namespace hyper_parallel::benchmarks
