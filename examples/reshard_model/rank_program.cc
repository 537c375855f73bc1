#include "examples/reshard_model/rank_program.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "examples/reshard_model/checkpoint_phases.h"
#include "examples/reshard_model/journey.h"
#include "examples/reshard_model/model.h"
#include "examples/reshard_model/operations.h"
#include "examples/reshard_model/ranks.h"
#include "examples/reshard_model/report.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel::examples {
namespace {

using Placements = std::vector<Placement>;

/// Runs the phases and remembers what was wrong; rank 0 prints as they end.
class Run {
 public:
  Run(const Options& options, const Ranks& ranks, const Model& model)
      : units_(options.units), ranks_(ranks), model_(model), journey_(ranks, model) {}

  void all_phases() {
    if (prints()) print_header(std::cout);
    line_phases();
    operations_phase();
    if (ranks_.size() % 2 == 0)
      grid_phases();
    else if (prints())
      std::cout << "no (2, n/2) mesh with " << ranks_.size() << " ranks\n";
  }

  /// Saves the model as it lies.
  void save_phase(const std::filesystem::path& checkpoint) {
    const PhaseResult phase = save_model(ranks_, model_, journey_.tensors(), checkpoint);
    if (prints()) print_row(std::cout, phase);
  }

  /// Prints the verdict; rank 0, which prints it, throws if it is not good.
  void conclude() const {
    const int64_t total = std::ssize(model_.tensors());
    const int64_t exact = total - std::ssize(wrong_tensors_);
    if (prints()) {
      for (const std::string& fault : faults_) std::cout << "WRONG " << printable(fault) << "\n";
      std::cout << "bit-exact: " << exact << " of " << total << std::endl;
    }
    HP_CHECK(!prints() || faults_.empty(), kDataLoss, faults_.size(),
             " faults, the first: ", printable(faults_.front()));
  }

 private:
  bool prints() const { return ranks_.rank() == 0; }

  void record(const PhaseResult& phase) {
    if (prints()) print_row(std::cout, phase);
    for (const std::string& name : phase.wrong) {
      faults_.push_back(str_cat(phase.name, ": ", name));
      wrong_tensors_.insert(name);
    }
    if (phase.bytes_sent != phase.lower_bound) {
      faults_.push_back(
          str_cat(phase.name, ": ", phase.bytes_sent, " bytes sent, the lower bound is ", phase.lower_bound));
    }
  }

  void operations_phase() {
    const OperationsResult result = run_operations(ranks_, model_, units_);
    if (prints()) print_row(std::cout, result.phase);
    for (const std::string& fault : result.phase.wrong) faults_.push_back(fault);
    if (prints()) std::cout << "  " << result.checks << " comparisons with plain torch on each rank\n";
  }

  /// All ranks in a row.
  void line_phases() {
    const DeviceMesh line({ranks_.size()}, {"rank"});
    std::vector<int64_t> reversed(units_.rbegin(), units_.rend());
    const auto ragged = [&](const at::Tensor& whole) { return Placements{ragged_or_replicate(whole, units_)}; };
    record(journey_.distribute(str_cat("distribute: units ", tuple_text(units_)), line, ragged));
    print_replicated();
    record(journey_.redistribute(str_cat("to units ", tuple_text(reversed)), [&](const at::Tensor& whole) {
      return Placements{ragged_or_replicate(whole, reversed)};
    }));
    record(journey_.redistribute("to other dims",
                                 [&](const at::Tensor& whole) { return Placements{with_more_dims(whole, units_)}; }));
    record(journey_.redistribute("to Shard(0)", [](const at::Tensor& whole) { return shard(whole, 0); }));
    record(journey_.redistribute("Shard(0) to Shard(1)", [](const at::Tensor& whole) { return shard(whole, 1); }));
    record(journey_.redistribute("Shard(1) back to ragged", ragged));
    record(journey_.gather("full_tensor"));
  }

  /// A (2, n/2) mesh: from ragged on the outer dim to ragged on the inner one.
  void grid_phases() {
    const int64_t inner = ranks_.size() / 2;
    const DeviceMesh grid({2, inner}, {"outer", "inner"});
    const std::vector<int64_t> outer_units{1, 3};
    const std::vector<int64_t> inner_units =
        inner == 2 ? std::vector<int64_t>{3, 1} : default_units(static_cast<int>(inner));
    const auto on_outer = [&](const at::Tensor& whole) {
      return Placements{ragged_or_replicate(whole, outer_units), Replicate{}};
    };
    record(journey_.distribute(str_cat("distribute on (2, ", inner, "): outer units (1, 3)"), grid, on_outer));
    record(journey_.redistribute(
        str_cat("to the inner mesh dim, units ", tuple_text(inner_units)),
        [&](const at::Tensor& whole) { return Placements{Replicate{}, ragged_or_replicate(whole, inner_units)}; }));
    record(journey_.gather("full_tensor"));
  }

  static std::optional<Placements> shard(const at::Tensor& whole, int64_t dim) {
    if (whole.dim() <= dim) return std::nullopt;
    return Placements{Shard(dim)};
  }

  void print_replicated() const {
    const std::vector<std::string> names = journey_.replicated();
    if (prints() && !names.empty()) {
      std::cout << "  replicated, as no leading dims divide by " << tuple_text(units_) << ": "
                << printable(join(names, ", ")) << "\n";
    }
  }

  const std::vector<int64_t>& units_;
  const Ranks& ranks_;
  const Model& model_;
  Journey journey_;
  std::vector<std::string> faults_;
  std::set<std::string> wrong_tensors_;
};

}  // namespace

void run_rank(const Options& options, const ProcessContext& process, const std::filesystem::path& checkpoint) {
  at::set_num_threads(1);  // the ranks share this machine
  const Model model(options.file);
  const Ranks ranks(options, process);
  if (process.rank == 0) {
    std::cout << model.tensors().size() << " tensors, " << bytes_text(model.bytes()) << ", " << process.size
              << " processes through Gloo, units " << tuple_text(options.units) << "\n\n";
  }
  Run run(options, ranks, model);
  run.all_phases();
  run.save_phase(checkpoint);
  ranks.barrier();  // nobody leaves while a peer still talks to it
  run.conclude();
}

}  // namespace hyper_parallel::examples
