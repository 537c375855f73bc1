// Redistributions between shards, through DTensor, against torch's all_to_all of the same splits and against the way
// via Replicate.

#include <algorithm>
#include <utility>

#include "benchmarks/bench_collectives/bare.h"
#include "benchmarks/bench_collectives/inputs.h"
#include "benchmarks/bench_collectives/row.h"

namespace hyper_parallel::benchmarks {
namespace {

/// A way of dealing out rows, and its name for the library and for people.
struct Dealing {
  std::string placement;
  std::string name;
  Splits units;
};

const Dealing kRagged13{"RaggedShard((0,), (1, 3))", "ragged (1, 3)", {1, 3}};
const Dealing kRagged31{"RaggedShard((0,), (3, 1))", "ragged (3, 1)", {3, 1}};
const Dealing kShard0{"Shard(0)", "Shard(0)", {1, 1}};

/// How many rows rank `a` of one dealing has in common with rank `b` of another.
int64_t overlap(const Splits& x, int64_t a, const Splits& y, int64_t b) {
  const int64_t begin = std::max(first_row(x, a), first_row(y, b));
  const int64_t end = std::min(first_row(x, a + 1), first_row(y, b + 1));
  return std::max<int64_t>(0, end - begin);
}

/// Every rank's rows under `to` of what `rank` has under `from`.
Splits rows_for_each(const Splits& from, int64_t rank, const Splits& to) {
  Splits rows;
  for (int64_t peer = 0; peer < std::ssize(to); ++peer) rows.push_back(overlap(from, rank, to, peer));
  return rows;
}

std::vector<Figure> dealing_figures(const Ranks& ranks, const Options& options, const Dealing& from,
                                    const Dealing& to) {
  const at::Tensor whole = matrix(options.size_mib);
  const Splits before = splits_of(whole, from.units);
  const Splits after = splits_of(whole, to.units);
  const int64_t rank = ranks.rank();
  const DTensor source = laid_out(whole, line_of(ranks), from.placement);
  const at::Tensor input = own_rows(whole, before, rank);
  const auto group = ranks.group();

  Comparison bare{.what = from.name + " -> " + to.name, .baseline = "torch all_to_all_single", .goal = at_most(1.15)};
  bare.ours = [=] { return source.redistribute(parse_placements(to.placement)).local(); };
  bare.theirs = [=] {
    return torch_all_to_all(input, rows_for_each(after, rank, before), rows_for_each(before, rank, after), *group);
  };
  Comparison detour = bare;
  detour.baseline = "via Replicate";
  detour.goal = faster(3);
  detour.theirs = [=] { return own_rows(source.full_tensor(), after, rank); };
  return {timed(ranks, options.pairs, std::move(bare)), timed(ranks, options.pairs, std::move(detour))};
}

/// Of torch's side only the bytes are the same: the pieces of columns that it would have to pack are not packed.
Figure transposing_figure(const Ranks& ranks, const Options& options) {
  const DTensor source = laid_out(matrix(options.size_mib), line_of(ranks), "Shard(0)");
  const at::Tensor input = source.local().clone();
  const Splits halves(2, input.size(0) / 2);
  Comparison comparison{.what = "Shard(0) -> Shard(1)",
                        .baseline = "torch all_to_all_single, same bytes",
                        .goal = at_most(1.5),
                        .results = Results::kUnrelated};
  comparison.ours = [=] { return source.redistribute({Shard(1)}).local(); };
  comparison.theirs = [=, group = ranks.group()] { return torch_all_to_all(input, halves, halves, *group); };
  return timed(ranks, options.pairs, std::move(comparison));
}

}  // namespace

std::vector<Figure> exchange_figures(const Ranks& ranks, const Options& options) {
  std::vector<Figure> figures;
  for (const auto& [from, to] :
       {std::pair(kRagged13, kRagged31), std::pair(kRagged13, kShard0), std::pair(kShard0, kRagged13)}) {
    for (Figure& figure : dealing_figures(ranks, options, from, to)) figures.push_back(std::move(figure));
  }
  figures.push_back(transposing_figure(ranks, options));
  return figures;
}

}  // namespace hyper_parallel::benchmarks
