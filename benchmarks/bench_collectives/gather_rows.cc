// The variable all-gather, as a function of ranks.

#include <utility>

#include "benchmarks/bench_collectives/bare.h"
#include "benchmarks/bench_collectives/inputs.h"
#include "benchmarks/bench_collectives/row.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/torch/variable_all_gather.h"

namespace hyper_parallel::benchmarks {
namespace {

using Gather = std::function<at::Tensor(const at::Tensor& input, const Splits& splits, c10d::ProcessGroup& group)>;

Figure gather_figure(const Ranks& ranks, const Options& options, const Splits& units, const std::string& baseline,
                     Goal goal, const Gather& gather) {
  const at::Tensor whole = matrix(options.size_mib);
  const Splits splits = splits_of(whole, units);
  const at::Tensor input = own_rows(whole, splits, ranks.rank());
  Comparison comparison{.what = str_cat("variable all-gather ", tuple_text(units)), .baseline = baseline, .goal = goal};
  comparison.ours = [=, group = ranks.group()] { return differentiable_variable_all_gather(input, splits, group); };
  comparison.theirs = [=, group = ranks.group()] { return gather(input, splits, *group); };
  return timed(ranks, options.pairs, std::move(comparison));
}

}  // namespace

std::vector<Figure> four_rank_gather_figures(const Ranks& ranks, const Options& options) {
  return {gather_figure(ranks, options, {1, 2, 0, 5}, "pad, all_gather, trim", faster(3), padded_gather)};
}

std::vector<Figure> gather_figures(const Ranks& ranks, const Options& options) {
  const Gather torch = [](const at::Tensor& input, const Splits&, c10d::ProcessGroup& group) {
    return torch_gather(input, group);
  };
  return {gather_figure(ranks, options, {1, 3}, "bare send/recv into place", at_most(1.15), bare_gather),
          gather_figure(ranks, options, {1, 1}, "bare send/recv into place", at_most(1.15), bare_gather),
          gather_figure(ranks, options, {1, 1}, "torch all_gather_into_tensor", at_most(1.1), torch)};
}

}  // namespace hyper_parallel::benchmarks
