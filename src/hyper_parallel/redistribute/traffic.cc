#include "hyper_parallel/redistribute/traffic.h"

#include <algorithm>

#include "hyper_parallel/base/checked.h"

namespace hyper_parallel {
namespace {

/// What one rank receives in one step, without listing its messages.
int64_t received(const Step& step, int64_t rank) {
  const Region target = step.to.owned(*step.to.mesh().coordinate(rank));
  return std::visit(Overloaded{
                        [&](const Move& move) {
                          if (move.pattern == MovePattern::kLocal) return int64_t{0};
                          const Region source = step.from.owned(*step.from.mesh().coordinate(rank));
                          return target.numel() - overlap_numel(source, target, step.from.shape());
                        },
                        [&](const Reduce& reduce) { return checked_mul(target.numel(), shares_of(step, reduce) - 1); },
                    },
                    step.action);
}

/// Shares pending of each cell: the product of the Partial dims that the plan resolves.
int64_t pending_shares(const Plan& plan) {
  int64_t shares = 1;
  for (const Step& step : plan.steps) {
    if (const auto* reduce = std::get_if<Reduce>(&step.action)) shares *= shares_of(step, *reduce);
  }
  return shares;
}

/// Copies of the tensor that the target keeps apart: the product of its Partial dims.
int64_t kept_shares(const Distribution& target) {
  int64_t shares = 1;
  for (int64_t dim = 0; dim < target.mesh().ndim(); ++dim) {
    if (std::holds_alternative<Partial>(target.dim_splits()[static_cast<size_t>(dim)]))
      shares *= target.mesh().size(dim);
  }
  return shares;
}

int64_t missing(const Plan& plan, int64_t rank) {
  const Region source = plan.source.owned(*plan.source.mesh().coordinate(rank));
  const Region target = plan.target.owned(*plan.target.mesh().coordinate(rank));
  return target.numel() - overlap_numel(source, target, plan.source.shape());
}

}  // namespace

int64_t shares_of(const Step& step, const Reduce& reduce) {
  int64_t shares = 1;
  for (const int64_t dim : reduce.mesh_dims) shares *= step.from.mesh().size(dim);
  return shares;
}

RankTraffic traffic(const RankPlan& plan) {
  RankTraffic total;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const RankStep& step = plan.steps[i];
    int64_t extra = (i > 0 ? step.source_numel : 0) + (i + 1 < plan.steps.size() ? step.target_numel : 0);
    for (const Transfer& send : step.sends) {
      total.sent += send.numel;
      total.messages += 1;
      if (!send.is_in_place()) extra += send.numel;
    }
    for (const Transfer& receive : step.receives) {
      total.received += receive.numel;
      if (step.combine || !receive.is_in_place()) extra += receive.numel;
    }
    total.peak_extra = std::max(total.peak_extra, extra);
  }
  return total;
}

RankTraffic traffic(const Plan& plan, int64_t rank) { return traffic(rank_plan(plan, rank)); }

MeshTraffic mesh_traffic(const Plan& plan) {
  MeshTraffic mesh;
  mesh.rounds = rounds(plan);
  for (const int64_t rank : plan.source.mesh().ranks()) {
    int64_t own = 0;
    for (const Step& step : plan.steps) own = checked_add(own, received(step, rank));
    mesh.total_received = checked_add(mesh.total_received, own);
    mesh.max_received = std::max(mesh.max_received, own);
  }
  mesh.lower_bound = total_lower_bound(plan);
  return mesh;
}

std::optional<int64_t> received_lower_bound(const Plan& plan, int64_t rank) {
  if (pending_shares(plan) > 1) return std::nullopt;
  return missing(plan, rank);
}

int64_t total_lower_bound(const Plan& plan) {
  const int64_t shares = pending_shares(plan);
  int64_t total = 0;
  if (shares > 1) {
    const int64_t cells = checked_mul(checked_product(plan.source.shape()), kept_shares(plan.target));
    total = checked_mul(cells, shares - 2);
  }
  for (const int64_t rank : plan.source.mesh().ranks()) {
    const int64_t own =
        shares > 1 ? plan.target.owned(*plan.target.mesh().coordinate(rank)).numel() : missing(plan, rank);
    total = checked_add(total, own);
  }
  return total;
}

}  // namespace hyper_parallel
