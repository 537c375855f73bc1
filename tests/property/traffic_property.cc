// What a plan costs, against bounds that are counted element by element.

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/redistribute/rank_plan.h"
#include "hyper_parallel/redistribute/traffic.h"
#include "tests/property/random_cases.h"
#include "tests/reference/from_layout.h"

namespace hyper_parallel::test {
namespace {

using reference::owned_elements;
using reference::Scheme;
using reference::scheme_of;

Plan plan_of(const Redistribution& pair) { return plan_redistribution(pair.source, pair.target, pair.shape); }

Redistribution draw_any_redistribution() {
  return draw_chance(50) ? draw_redistribution_of_partial() : draw_redistribution_without_partial();
}

/// The elements that the rank owns under the target and does not hold under the source.
int64_t missing_elements(const Scheme& source, const Scheme& target, int64_t rank) {
  const std::vector<int64_t> held = owned_elements(source, rank);
  int64_t missing = 0;
  for (const int64_t element : owned_elements(target, rank)) missing += std::ranges::count(held, element) == 0 ? 1 : 0;
  return missing;
}

int64_t received_elements(const Plan& plan, int64_t rank) {
  int64_t received = 0;
  for (const RankStep& step : rank_plan(plan, rank).steps) {
    for (const Transfer& receive : step.receives) received += receive.numel;
  }
  return received;
}

int64_t total_received(const Plan& plan) {
  int64_t total = 0;
  for (const int64_t rank : plan.source.mesh().ranks()) total += received_elements(plan, rank);
  return total;
}

TEST(Received, WithoutPartial_IsTheLowerBoundOnEveryRank) {
  check_property(6000, [] {
    const Redistribution pair = *drawn(draw_redistribution_without_partial);
    const Scheme source = scheme_of(pair.source, pair.shape.to_vector());
    const Scheme target = scheme_of(pair.target, pair.shape.to_vector());
    const Plan plan = plan_of(pair);
    int64_t total = 0;
    int64_t most = 0;
    for (const int64_t rank : source.ranks) {
      const int64_t missing = missing_elements(source, target, rank);
      RC_ASSERT(received_elements(plan, rank) == missing);
      RC_ASSERT(received_lower_bound(plan, rank) == std::optional(missing));
      total += missing;
      most = std::max(most, missing);
    }
    const MeshTraffic mesh = mesh_traffic(plan);
    RC_ASSERT(mesh.total_received == total);
    RC_ASSERT(mesh.lower_bound == total);
    RC_ASSERT(mesh.max_received == most);
    if (rounds(plan) == 0) RC_ASSERT(total == 0);
  });
}

TEST(Traffic, OfARankAndOfTheMesh_CountsTheTransfers) {
  check_property(3000, [] {
    const Redistribution pair = *drawn(draw_any_redistribution);
    const Plan plan = plan_of(pair);
    int64_t sent = 0;
    int64_t received = 0;
    int64_t most = 0;
    for (const int64_t rank : plan.source.mesh().ranks()) {
      const RankTraffic own = traffic(plan, rank);
      int64_t messages = 0;
      for (const RankStep& step : rank_plan(plan, rank).steps) messages += static_cast<int64_t>(step.sends.size());
      RC_ASSERT(own.messages == messages);
      RC_ASSERT(own.received == received_elements(plan, rank));
      sent += own.sent;
      received += own.received;
      most = std::max(most, own.received);
    }
    const MeshTraffic mesh = mesh_traffic(plan);
    RC_ASSERT(sent == received);
    RC_ASSERT(mesh.total_received == received);
    RC_ASSERT(mesh.max_received == most);
    RC_ASSERT(mesh.lower_bound == total_lower_bound(plan));
    RC_ASSERT(mesh.rounds == rounds(plan));
  });
}

/// True if every rank's share is one run of the flat tensor.
bool is_interval_layout(const Layout& layout, int64_t ndim) {
  return std::ranges::all_of(layout.folded(ndim).placements(), [](const Placement& placement) {
    return is_replicate(placement) || is_ragged_shard(placement) || placement == Placement(Shard(0));
  });
}

TEST(Traffic, BetweenIntervalLayouts_NeedsNoExtraMemory) {
  check_property(3000, [] {
    const Redistribution pair = *drawn([] {
      const DeviceMesh mesh = draw_mesh();
      const Dims shape = draw_shape(1);
      const auto draw_interval_layout = [&] {
        if (draw_chance(60)) return draw_ragged_layout(mesh, shape);
        std::vector<Placement> placements(static_cast<size_t>(mesh.ndim()), Replicate{});
        for (Placement& placement : placements) {
          if (draw_chance(60)) placement = Shard(0);
        }
        return Layout(mesh, std::move(placements));
      };
      return Redistribution{draw_interval_layout(), draw_interval_layout(), shape};
    });
    const int64_t ndim = static_cast<int64_t>(pair.shape.size());
    RC_ASSERT(is_interval_layout(pair.source, ndim) && is_interval_layout(pair.target, ndim));
    const Plan plan = plan_of(pair);
    for (const int64_t rank : plan.source.mesh().ranks()) RC_ASSERT(traffic(plan, rank).peak_extra == 0);
  });
}

/// Fails unless the transfers go to other ranks, by ascending position, each with what its pieces hold.
void check_transfers(const DeviceMesh& mesh, int64_t rank, const std::vector<Transfer>& transfers) {
  int64_t before = -1;
  for (const Transfer& transfer : transfers) {
    RC_ASSERT(transfer.peer != rank);
    const int64_t position = mesh.position(transfer.peer).value();
    RC_ASSERT(position > before);
    before = position;
    RC_ASSERT(transfer.numel > 0);
    int64_t numel = 0;
    for (const StridedView& piece : transfer.pieces) numel += piece.numel();
    RC_ASSERT(transfer.numel == numel);
  }
}

TEST(RankPlan, WhatOneRankSends_AnotherReceives) {
  check_property(4000, [] {
    const Redistribution pair = *drawn(draw_any_redistribution);
    const Plan plan = plan_of(pair);
    for (const Step& step : plan.steps) {
      std::set<std::tuple<int64_t, int64_t, int64_t>> sent;
      std::set<std::tuple<int64_t, int64_t, int64_t>> received;
      for (const int64_t rank : step.from.mesh().ranks()) {
        const RankStep own = rank_step(step, rank);
        check_transfers(step.to.mesh(), rank, own.sends);
        check_transfers(step.from.mesh(), rank, own.receives);
        for (const Transfer& transfer : own.sends) sent.emplace(rank, transfer.peer, transfer.numel);
        for (const Transfer& transfer : own.receives) received.emplace(transfer.peer, rank, transfer.numel);
        if (is_local(step)) RC_ASSERT(own.sends.empty() && own.receives.empty());
      }
      RC_ASSERT(sent == received);
    }
  });
}

TEST(RankPlan, OfARankOutsideTheMesh_IsEmpty) {
  check_property(200, [] {
    const Redistribution pair = *drawn(draw_any_redistribution);
    const RankPlan outside = rank_plan(plan_of(pair), std::ranges::max(pair.source.mesh().ranks()) + 1);
    RC_ASSERT(outside.steps.empty());
    RC_ASSERT(outside.target_shape == Dims{0});
  });
}

/// The target's local shape: the counted one for ragged layouts, else its element count fits.
TEST(RankPlan, TargetShape_HoldsWhatTheRankOwns) {
  check_property(1000, [] {
    const Redistribution pair = *drawn(draw_any_redistribution);
    const Scheme target = scheme_of(pair.target, pair.shape.to_vector());
    const Plan plan = plan_of(pair);
    for (const int64_t rank : target.ranks) {
      const Dims shape = rank_plan(plan, rank).target_shape;
      int64_t numel = 1;
      for (const int64_t size : shape) numel *= size;
      RC_ASSERT(numel == static_cast<int64_t>(owned_elements(target, rank).size()));
      RC_ASSERT(shape.size() == (pair.target.is_ragged() ? 1 : pair.shape.size()));
    }
  });
}

/// What a Partial source still costs at best, counted for each element by itself: bringing its shares together takes
/// one receive less than there are shares, and each further rank that needs the value receives at least once more. What
/// stays Partial is a tensor of its own for each coordinate along it.
int64_t counted_partial_bound(const Redistribution& pair) {
  const Scheme source = scheme_of(pair.source, pair.shape.to_vector());
  const Scheme target = scheme_of(pair.target, pair.shape.to_vector());
  int64_t shares = 1;
  std::vector<size_t> kept;
  for (size_t dim = 0; dim < source.rules.size(); ++dim) {
    if (!is_partial(pair.source.placements()[dim])) continue;
    if (pair.source.mesh() == pair.target.mesh() && is_partial(pair.target.placements()[dim])) {
      kept.push_back(dim);
    } else {
      shares *= source.mesh_shape[dim];
    }
  }
  int64_t bound = 0;
  if (shares == 1) {
    for (const int64_t rank : source.ranks) bound += missing_elements(source, target, rank);
    return bound;
  }
  std::map<std::pair<std::vector<int64_t>, int64_t>, int64_t> owners;  // by coordinate along `kept` and element
  for (const int64_t rank : target.ranks) {
    std::vector<int64_t> at;
    for (const size_t dim : kept) at.push_back(coordinate_of(target, rank).value()[dim]);
    for (const int64_t element : owned_elements(target, rank)) ++owners[{at, element}];
  }
  for (const auto& [element, count] : owners) bound += (shares - 1) + (count - 1);
  return bound;
}

TEST(Received, FromPartial_IsAtLeastTheCountedBound) {
  check_property(3000, [] {
    const Redistribution pair = *drawn(draw_redistribution_of_partial);
    const Plan plan = plan_of(pair);
    const int64_t bound = counted_partial_bound(pair);
    RC_ASSERT(total_lower_bound(plan) == bound);
    RC_ASSERT(total_received(plan) >= bound);
  });
}

TEST(Received, FromPartialOnAMeshOfOneDim_IsTheBound) {
  check_property(2000, [] {
    const Redistribution pair = *drawn([] {
      const DeviceMesh mesh = draw_mesh().flatten();
      const Dims shape = draw_shape();
      return Redistribution{Layout(mesh, {Partial(ReduceOp::kSum)}), draw_layout_without_partial(mesh, shape), shape};
    });
    RC_ASSERT(total_received(plan_of(pair)) == counted_partial_bound(pair));
  });
}

/// What is received in all on the way from `source` to `target` through `source` with `split` in place of each Partial.
int64_t received_by_detour(const Distribution& source, const DimSplit& split, const Distribution& target) {
  Distribution between = source;
  for (int64_t dim = 0; dim < source.mesh().ndim(); ++dim) {
    const bool is_pending = std::holds_alternative<Partial>(source.dim_splits()[static_cast<size_t>(dim)]);
    if (is_pending) between = between.with_split(dim, split);
  }
  return total_received(plan_distribution(source, between)) + total_received(plan_distribution(between, target));
}

TEST(Received, FromPartialOfOneOp_IsNoMoreThanByAnyDetour) {
  check_property(2000, [] {
    const Redistribution pair = *drawn(draw_redistribution_of_partial);
    const std::vector<Placement>& placements = pair.source.placements();
    const Placement first = *std::ranges::find_if(placements, is_partial);
    RC_PRE(!pair.target.has_partial());
    RC_PRE(std::ranges::count_if(placements, is_partial) == std::ranges::count(placements, first));
    const Plan plan = plan_of(pair);
    const int64_t received = total_received(plan);
    RC_ASSERT(received <= received_by_detour(plan.source, FlatSplit{}, plan.target));
    for (int64_t dim = 0; std::cmp_less(dim, pair.shape.size()); ++dim) {
      RC_ASSERT(received <= received_by_detour(plan.source, Shard(dim), plan.target));
    }
  });
}

TEST(Received, AllReduce_IsTwiceTheOtherRanksTimesTheTensor) {
  for (int64_t ranks = 1; ranks <= 8; ++ranks) {
    for (int64_t numel = 0; numel <= 20; ++numel) {
      const DeviceMesh mesh({ranks}, {"dp"});
      const Plan plan =
          plan_redistribution(Layout(mesh, {Partial(ReduceOp::kSum)}), Layout(mesh, {Replicate{}}), {numel});
      EXPECT_EQ(total_received(plan), 2 * (ranks - 1) * numel) << ranks << " ranks, " << numel << " elements";
    }
  }
}

/// True if the mesh dim may be sharded by `tensor_dim` before the inner mesh dims are: none of these cuts it already.
bool is_innermost_shard(const Layout& layout, size_t mesh_dim, int64_t tensor_dim) {
  const auto& placements = layout.placements();
  return std::none_of(placements.begin() + static_cast<int64_t>(mesh_dim) + 1, placements.end(),
                      [&](const Placement& placement) { return placement == Placement(Shard(tensor_dim)); });
}

/// Only one mesh dim changes: from Partial to Shard or, where nothing else is sharded, to RaggedShard.
Redistribution draw_reduce_scatter() {
  const DeviceMesh mesh = draw_mesh();
  const Dims shape = draw_shape(1);
  const size_t changed = static_cast<size_t>(draw(0, mesh.ndim() - 1));
  const int64_t ndim = static_cast<int64_t>(shape.size());
  std::vector<Placement> placements(static_cast<size_t>(mesh.ndim()), Replicate{});
  placements[changed] = draw_ragged_shard(shape, mesh.size(static_cast<int64_t>(changed)));
  if (draw_chance(50)) {
    const Layout others = draw_normal_layout(mesh, shape).folded(ndim);
    const int64_t tensor_dim = draw(0, ndim - 1);
    if (is_innermost_shard(others, changed, tensor_dim)) {
      placements = others.placements();
      placements[changed] = Shard(tensor_dim);
    }
  }
  Layout target(mesh, placements);
  placements[changed] = Partial(draw_of<ReduceOp>({ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}));
  return {Layout(mesh, std::move(placements)), std::move(target), shape};
}

bool has_replicas(const Layout& layout) {
  for (int64_t dim = 0; dim < layout.mesh().ndim(); ++dim) {
    if (is_replicate(layout.placements()[static_cast<size_t>(dim)]) && layout.mesh().size(dim) > 1) return true;
  }
  return false;
}

TEST(Received, ReduceScatter_IsTheSharesOfTheOtherRanks) {
  check_property(3000, [] {
    const Redistribution pair = *drawn(draw_reduce_scatter);
    const auto changed = std::ranges::find_if(pair.source.placements(), is_partial) - pair.source.placements().begin();
    const int64_t others = pair.source.mesh().size(changed) - 1;
    const Scheme target = scheme_of(pair.target, pair.shape.to_vector());
    const Plan plan = plan_of(pair);
    int64_t total = 0;
    for (const int64_t rank : target.ranks) {
      const int64_t own = others * static_cast<int64_t>(owned_elements(target, rank).size());
      total += own;
      // Replicas may share the work and then receive less in all; without them each rank reduces what it owns.
      if (!has_replicas(pair.target)) RC_ASSERT(received_elements(plan, rank) == own);
    }
    RC_ASSERT(total_received(plan) <= total);
  });
}

}  // namespace
}  // namespace hyper_parallel::test
