#include "hyper_parallel/redistribute/planner.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/redistribute/traffic.h"

namespace hyper_parallel {
namespace {

bool same_mesh(const Distribution& a, const Distribution& b) { return a.mesh() == b.mesh(); }

const Partial* partial_on(const Distribution& distribution, size_t mesh_dim) {
  return std::get_if<Partial>(&distribution.dim_splits()[mesh_dim]);
}

/// Sum and avg are both linear, so either may be resolved first; any other pair keeps its order.
bool commute(ReduceOp a, ReduceOp b) {
  const auto linear = [](ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; };
  return a == b || (linear(a) && linear(b));
}

bool is_pending(const Distribution& state, const Distribution& target, size_t mesh_dim) {
  const Partial* partial = partial_on(state, mesh_dim);
  return partial != nullptr &&
         !(same_mesh(state, target) && state.dim_splits()[mesh_dim] == target.dim_splits()[mesh_dim]);
}

void check_meshes(const Layout& source, const Layout& target) {
  if (source.mesh() == target.mesh()) return;
  HP_CHECK(source.mesh().same_ranks(target.mesh()), kInvalidArgument, "cannot redistribute from ",
           to_string(source.mesh()), " to ", to_string(target.mesh()), ": the meshes must hold the same ranks");
  HP_CHECK(!source.is_ragged() && !target.is_ragged(), kInvalidArgument, "cannot redistribute ",
           short_text(source.placements()), " to ", short_text(target.placements()),
           " on another mesh: a RaggedShard stays on its mesh");
}

void check_no_new_partial(const Distribution& source, const Distribution& target) {
  for (size_t dim = 0; dim < target.dim_splits().size(); ++dim) {
    if (partial_on(target, dim) == nullptr) continue;
    const bool kept = same_mesh(source, target) && source.dim_splits()[dim] == target.dim_splits()[dim];
    HP_CHECK(kept, kInvalidArgument, "cannot redistribute ", short_text(source), " to ", short_text(target),
             ": nothing but the same Partial becomes ", to_string(target.dim_splits()[dim]), " on mesh dim '",
             target.mesh().names()[dim], "'");
  }
}

/// A pending reduction must not overtake one further in that stays pending, unless the two commute.
void check_reduction_order(const Distribution& source, const Distribution& target) {
  for (size_t outer = 0; outer < source.dim_splits().size(); ++outer) {
    if (!is_pending(source, target, outer)) continue;
    for (size_t inner = outer + 1; inner < source.dim_splits().size(); ++inner) {
      const Partial* kept = partial_on(source, inner);
      HP_CHECK(kept == nullptr || is_pending(source, target, inner) || commute(partial_on(source, outer)->op, kept->op),
               kInvalidArgument, "cannot redistribute ", short_text(source), " to ", short_text(target), ": ",
               to_string(source.dim_splits()[outer]), " on mesh dim '", source.mesh().names()[outer],
               "' stands outside ", to_string(source.dim_splits()[inner]), " and must be reduced after it");
    }
  }
}

/// The innermost pending mesh dims of one op, ascending; empty when nothing is pending.
std::vector<int64_t> innermost_pending(const Distribution& state, const Distribution& target) {
  std::vector<int64_t> dims;
  std::optional<ReduceOp> op;
  for (size_t dim = state.dim_splits().size(); dim-- > 0;) {
    if (!is_pending(state, target, dim)) continue;
    if (op && *op != partial_on(state, dim)->op) break;
    op = partial_on(state, dim)->op;
    dims.insert(dims.begin(), static_cast<int64_t>(dim));
  }
  return dims;
}

/// True if a distribution may have these splits: at most one RaggedShard, no Shard beside it.
bool can_stand_together(const std::vector<DimSplit>& splits) {
  const auto count = [&]<typename Kind>(std::type_identity<Kind>) {
    return std::ranges::count_if(splits, [](const DimSplit& split) { return std::holds_alternative<Kind>(split); });
  };
  const auto ragged = count(std::type_identity<RaggedShard>{});
  return ragged == 0 || (ragged == 1 && count(std::type_identity<Shard>{}) == 0);
}

/// One way to spread a reduction over the ranks that take part. `reduced` replaces the pending dims (nothing: what the
/// target has there, or FlatSplit where the target does not split), `replicas` says whether Replicate dims already take
/// the target's split.
struct Spread {
  std::optional<DimSplit> reduced;
  enum class Replicas { kKeep, kSlice } replicas;
};

std::vector<Spread> spreads(size_t tensor_ndim) {
  std::vector<Spread> all;
  for (const auto replicas : {Spread::Replicas::kSlice, Spread::Replicas::kKeep}) {
    all.push_back({std::nullopt, replicas});
    all.push_back({FlatSplit{}, replicas});
    for (size_t dim = 0; dim < tensor_ndim; ++dim) all.push_back({Shard(static_cast<int64_t>(dim)), replicas});
  }
  return all;
}

/// The distribution after reducing `dims` of `state` under `spread`, if it is one that the reduction can reach.
std::optional<Distribution> reduced_to(const Distribution& state, const Distribution& target,
                                       const std::vector<int64_t>& dims, const Spread& spread) {
  std::vector<DimSplit> changed = state.dim_splits();
  for (size_t dim = 0; dim < changed.size(); ++dim) {
    const bool target_splits = same_mesh(state, target) && splits(target.dim_splits()[dim]);
    if (std::ranges::find(dims, static_cast<int64_t>(dim)) != dims.end()) {
      changed[dim] = spread.reduced  ? *spread.reduced
                     : target_splits ? target.dim_splits()[dim]
                                     : DimSplit(FlatSplit{});
    } else if (std::holds_alternative<Replicate>(changed[dim]) && target_splits &&
               spread.replicas == Spread::Replicas::kSlice &&
               !std::holds_alternative<FlatSplit>(
                   target.dim_splits()[dim])) {  // a flat cut here would be outside later ones
      changed[dim] = target.dim_splits()[dim];
    }
  }
  if (!can_stand_together(changed)) return std::nullopt;
  Distribution reduced(state.mesh(), std::move(changed), state.shape());
  return state.is_refined_by(reduced) ? std::optional(std::move(reduced)) : std::nullopt;
}

bool same_splits(const Distribution& a, const Distribution& b) {
  for (size_t dim = 0; dim < a.dim_splits().size(); ++dim) {
    const DimSplit& left = a.dim_splits()[dim];
    const DimSplit& right = b.dim_splits()[dim];
    if (left == right) continue;
    const auto* ragged_left = std::get_if<RaggedShard>(&left);
    const auto* ragged_right = std::get_if<RaggedShard>(&right);
    if (ragged_left == nullptr || ragged_right == nullptr) return false;
    if (!same_split(RaggedSplit(*ragged_left, a.shape()), RaggedSplit(*ragged_right, b.shape()))) return false;
  }
  return true;
}

void append_move(Plan& plan, const Distribution& state, const Distribution& target) {
  const bool one_mesh = same_mesh(state, target);
  if (one_mesh && same_splits(state, target)) return;
  const MovePattern pattern = one_mesh && state.is_refined_by(target)   ? MovePattern::kLocal
                              : one_mesh && target.is_refined_by(state) ? MovePattern::kAllGather
                                                                        : MovePattern::kAllToAll;
  plan.steps.push_back({Move{pattern}, state, target});
}

/// The reduction of `dims` after which the least is received in all, by it and by the Move to the target; then the
/// fewest rounds, then the least on the busiest rank, then the first.
Step best_reduce(const Distribution& state, const Distribution& target, const std::vector<int64_t>& dims) {
  const ReduceOp op = partial_on(state, static_cast<size_t>(dims.front()))->op;
  std::optional<Step> best;
  std::tuple<int64_t, int64_t, int64_t> best_cost;
  for (const Spread& spread : spreads(state.shape().size())) {
    auto reduced = reduced_to(state, target, dims, spread);
    if (!reduced) continue;
    Plan tail{state, target, {Step{Reduce{op, dims}, state, *reduced}}};
    append_move(tail, *reduced, target);
    const MeshTraffic cost = mesh_traffic(tail);
    const std::tuple key(cost.total_received, cost.rounds, cost.max_received);
    if (!best || key < best_cost) {
      best = std::move(tail.steps.front());
      best_cost = key;
    }
    if (std::get<0>(best_cost) == cost.lower_bound) break;
  }
  // No layout gives such a source; a distribution can hold a FlatSplit that was cut outside the pending dims.
  HP_CHECK(best.has_value(), kInvalidArgument, "cannot reduce ", short_text(state),
           ": its blocks are cut flat on a mesh dim outside the pending reduction");
  return *best;
}

}  // namespace

Plan plan_redistribution(const Layout& source, const Layout& target, const Dims& shape) {
  check_meshes(source, target);
  return plan_distribution(Distribution(source, shape), Distribution(target, shape));
}

Plan plan_distribution(const Distribution& source, const Distribution& target) {
  HP_DCHECK(source.shape() == target.shape());
  check_no_new_partial(source, target);
  check_reduction_order(source, target);
  Plan plan{source, target, {}};
  Distribution state = source;
  for (auto dims = innermost_pending(state, target); !dims.empty(); dims = innermost_pending(state, target)) {
    plan.steps.push_back(best_reduce(state, target, dims));
    state = plan.steps.back().to;
  }
  append_move(plan, state, target);
  return plan;
}

}  // namespace hyper_parallel
