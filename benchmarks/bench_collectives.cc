// Times what goes between processes, each row beside a baseline measured in the same run: the variable collectives and
// the redistributions over real processes and Gloo. A row that misses its goal says so; the exit code stays 0, since
// machines are noisy.
//
//   bench_collectives [--pairs 21] [--size-mib 64] [--only REGEX] [--json]
//
// Exit code 1: a result was wrong or a rank failed; 2: wrong arguments.

#include <ATen/Parallel.h>

#include <iostream>
#include <memory>

#include "benchmarks/bench_collectives/options.h"
#include "benchmarks/bench_collectives/rank_processes.h"
#include "benchmarks/bench_collectives/ranks.h"
#include "benchmarks/bench_collectives/report.h"
#include "benchmarks/bench_collectives/row.h"

namespace {

using namespace hyper_parallel::benchmarks;

constexpr int kRanks = 4;
/// Most rows are judged between two ranks, so that each has a core of its own.
constexpr int kJudgedRanks = 2;

void run_figures(const std::vector<Figure>& figures, const Options& options, Report* report) {
  for (const Figure& figure : figures) {
    if (!std::regex_search(figure.what + " | " + figure.baseline, options.only)) continue;
    const Row row = figure.run();
    if (report != nullptr) report->add(row);
  }
}

/// All rows on one rank; rank 0 reports. The ranks of the first rows are gone when the last ones run on fewer.
void run_rank(int rank, const std::filesystem::path& store, const Options& options) {
  at::set_num_threads(1);
  const std::unique_ptr<Report> report = rank == 0 ? make_report(options, std::cout) : nullptr;
  {
    const Ranks all(store, "all", rank, kRanks);
    run_figures(traffic_figures(all), options, report.get());
    run_figures(four_rank_gather_figures(all, options), options, report.get());
    all.barrier();
  }
  if (rank >= kJudgedRanks) return;
  const Ranks two(store, "two", rank, kJudgedRanks);
  run_figures(gather_figures(two, options), options, report.get());
  run_figures(reduce_figures(two, options), options, report.get());
  run_figures(exchange_figures(two, options), options, report.get());
  if (report) report->finish();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<Options> options = parse_options(argc, argv, std::cout, std::cerr);
    if (!options) return 0;
    RankProcesses processes;
    processes.run(kRanks, [&](int rank, const std::filesystem::path& store) { run_rank(rank, store, *options); });
    return 0;
  } catch (const UsageError&) {
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "bench_collectives: " << error.what() << "\n";
    return 1;
  }
}
