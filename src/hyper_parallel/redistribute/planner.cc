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

/// The innermost pending mesh dims whose ops commute, ascending; empty when nothing is pending.
std::vector<int64_t> innermost_pending(const Distribution& state, const Distribution& target) {
  std::vector<int64_t> dims;
  for (size_t dim = state.dim_splits().size(); dim-- > 0;) {
    if (!is_pending(state, target, dim)) continue;
    const ReduceOp op = partial_on(state, dim)->op;
    if (!dims.empty() && !commute(op, partial_on(state, static_cast<size_t>(dims.front()))->op)) break;
    dims.insert(dims.begin(), static_cast<int64_t>(dim));
  }
  return dims;
}

/// The op of one reduction over `dims`: an avg if any of them is one (see Reduce).
ReduceOp common_op(const Distribution& state, const std::vector<int64_t>& dims) {
  const auto op_on = [&](int64_t dim) { return partial_on(state, static_cast<size_t>(dim))->op; };
  const bool averages = std::ranges::any_of(dims, [&](int64_t dim) { return op_on(dim) == ReduceOp::kAvg; });
  return averages ? ReduceOp::kAvg : op_on(dims.front());
}

/// True if a distribution may have these splits: at most one RaggedShard, no Shard beside it.
bool can_stand_together(const std::vector<DimSplit>& splits) {
  const auto count = [&]<typename Kind>(std::type_identity<Kind>) {
    return std::ranges::count_if(splits, [](const DimSplit& split) { return std::holds_alternative<Kind>(split); });
  };
  const auto ragged = count(std::type_identity<RaggedShard>{});
  return ragged == 0 || (ragged == 1 && count(std::type_identity<Shard>{}) == 0);
}

/// One way to spread a reduction over the ranks that take part.
struct Spread {
  /// Replaces the pending dims; nothing: what the target has there. FlatSplit where that cannot be reached.
  std::optional<DimSplit> reduced;
  /// What becomes of Replicate dims: they stay, or take the target's split. Or they share the work: they take the
  /// target's split, or else FlatSplit, which the Move behind the reduction gathers again.
  enum class Replicas { kKeep, kSlice, kShare } replicas;
};

/// Whether the target is whole on every one of the pending `dims`.
bool ends_whole(const Distribution& state, const Distribution& target, const std::vector<int64_t>& dims) {
  return same_mesh(state, target) && std::ranges::all_of(dims, [&](int64_t dim) {
           return std::holds_alternative<Replicate>(target.dim_splits()[static_cast<size_t>(dim)]);
         });
}

/// What is most often the cheapest comes first, and of those what takes the fewest rounds: between two ranks that both
/// end with the whole, to give each other everything receives no more than to share the work and gather, in one round.
std::vector<Spread> spreads(const Distribution& state, const Distribution& target, const std::vector<int64_t>& dims) {
  using enum Spread::Replicas;
  std::vector<std::optional<DimSplit>> splits;
  if (ends_whole(state, target, dims)) splits.emplace_back(Replicate{});
  splits.emplace_back(std::nullopt);
  splits.emplace_back(FlatSplit{});
  for (size_t dim = 0; dim < state.shape().size(); ++dim) splits.emplace_back(Shard(static_cast<int64_t>(dim)));
  std::vector<Spread> all;
  for (const std::optional<DimSplit>& reduced : splits) {
    for (const auto replicas : {kSlice, kShare, kKeep}) all.push_back({reduced, replicas});
  }
  return all;
}

/// What a pending dim may become, the best first. The target has `wanted` there: nothing on another mesh.
std::vector<DimSplit> choices_of_pending(const Spread& spread, const DimSplit* wanted) {
  if (spread.reduced) return {*spread.reduced, FlatSplit{}};
  if (wanted != nullptr && splits(*wanted)) return {*wanted, FlatSplit{}};
  return {FlatSplit{}};
}

/// The same of a Replicate dim.
std::vector<DimSplit> choices_of_replica(const Spread& spread, const DimSplit* wanted) {
  std::vector<DimSplit> choices;
  if (spread.replicas != Spread::Replicas::kKeep && wanted != nullptr && splits(*wanted)) choices.push_back(*wanted);
  if (spread.replicas == Spread::Replicas::kShare) choices.emplace_back(FlatSplit{});
  choices.emplace_back(Replicate{});
  return choices;
}

/// The distribution after reducing `dims` of `state` under `spread`: each dim becomes the first of its choices that the
/// reduction can reach. Nothing if a dim can become none of them.
std::optional<Distribution> reduced_to(const Distribution& state, const Distribution& target,
                                       const std::vector<int64_t>& dims, const Spread& spread) {
  std::vector<DimSplit> changed = state.dim_splits();
  for (size_t dim = 0; dim < changed.size(); ++dim) {
    const bool is_reduced = std::ranges::find(dims, static_cast<int64_t>(dim)) != dims.end();
    if (!is_reduced && !std::holds_alternative<Replicate>(changed[dim])) continue;
    const DimSplit* wanted = same_mesh(state, target) ? &target.dim_splits()[dim] : nullptr;
    const auto choices = is_reduced ? choices_of_pending(spread, wanted) : choices_of_replica(spread, wanted);
    const bool found = std::ranges::any_of(choices, [&](const DimSplit& choice) {
      changed[dim] = choice;
      return can_stand_together(changed) && state.is_refined_by(Distribution(state.mesh(), changed, state.shape()));
    });
    if (!found) return std::nullopt;
  }
  return Distribution(state.mesh(), std::move(changed), state.shape());
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

/// The cheapest of the plans that it is shown: the least received in all, then the fewest rounds, then the least on the
/// busiest rank, then the first.
class Cheapest {
 public:
  void offer(Plan plan) {
    const MeshTraffic traffic = mesh_traffic(plan);
    const Cost cost(traffic.total_received, traffic.rounds, traffic.max_received);
    if (plan_ && cost_ <= cost) return;
    plan_ = std::move(plan);
    cost_ = cost;
    is_at_bound_ = traffic.total_received == traffic.lower_bound;
  }

  /// True if nothing that is still to come receives less.
  bool is_at_bound() const { return is_at_bound_; }
  std::optional<Plan> take() && { return std::move(plan_); }

 private:
  using Cost = std::tuple<int64_t, int64_t, int64_t>;
  std::optional<Plan> plan_;
  Cost cost_;
  bool is_at_bound_ = false;
};

/// Offers every way to end the plan that has led to `state`.
void search(const Plan& begun, const Distribution& state, Cheapest& cheapest) {
  const std::vector<int64_t> dims = innermost_pending(state, begun.target);
  if (dims.empty()) {
    Plan plan = begun;
    append_move(plan, state, begun.target);
    return cheapest.offer(std::move(plan));
  }
  std::vector<Distribution> seen;
  for (const Spread& spread : spreads(state, begun.target, dims)) {
    if (cheapest.is_at_bound()) return;
    const auto reduced = reduced_to(state, begun.target, dims, spread);
    if (!reduced || std::ranges::find(seen, *reduced) != seen.end()) continue;
    seen.push_back(*reduced);
    Plan longer = begun;
    longer.steps.push_back({Reduce{common_op(state, dims), dims}, state, *reduced});
    search(longer, *reduced, cheapest);
  }
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
  if (innermost_pending(source, target).empty()) {
    append_move(plan, source, target);
    return plan;
  }
  Cheapest cheapest;
  search(plan, source, cheapest);
  auto found = std::move(cheapest).take();
  // No layout gives such a source; a distribution can hold a FlatSplit that was cut outside the pending dims.
  HP_CHECK(found.has_value(), kInvalidArgument, "cannot reduce ", short_text(source),
           ": its blocks are cut flat on a mesh dim outside the pending reduction");
  return *std::move(found);
}

}  // namespace hyper_parallel
