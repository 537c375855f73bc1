#pragma once

// The rows as a table for a person, each printed as soon as it is known, or as one JSON document.

#include <memory>
#include <ostream>

#include "benchmarks/bench_collectives/options.h"
#include "benchmarks/bench_collectives/row.h"

namespace hyper_parallel::benchmarks {

class Report {
 public:
  virtual ~Report() = default;
  virtual void add(const Row& row) = 0;
  /// After the last row.
  virtual void finish() = 0;
};

/// A report in the format that the options ask for. `out` must outlive it.
std::unique_ptr<Report> make_report(const Options& options, std::ostream& out);

}  // namespace hyper_parallel::benchmarks
