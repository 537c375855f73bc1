#include "hyper_parallel/redistribute/redistribution.h"

#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

/// The layout with each placement replaced by `change(placement)`.
template <typename Change>
Layout changed_layout(const Layout& layout, const Change& change) {
  std::vector<Placement> placements = layout.placements();
  for (Placement& placement : placements) placement = change(placement);
  return Layout::with_partial_beside_ragged(layout.mesh(), std::move(placements));
}

/// Whether the redistribution resolves a reduction on the mesh dim.
bool pending(const Redistribution& move, size_t mesh_dim) {
  return is_partial(move.source.placements()[mesh_dim]) &&
         !(move.source.mesh() == move.target.mesh() &&
           move.source.placements()[mesh_dim] == move.target.placements()[mesh_dim]);
}

/// The op of the innermost pending reduction, nothing if none is pending.
std::optional<ReduceOp> innermost_op(const Redistribution& move) {
  for (size_t dim = move.source.placements().size(); dim-- > 0;) {
    if (pending(move, dim)) return std::get<Partial>(move.source.placements()[dim]).op;
  }
  return std::nullopt;
}

bool is_extreme(ReduceOp op) { return op == ReduceOp::kMax || op == ReduceOp::kMin; }

/// The source with its pending dims of the innermost op replicated: where the reduction of these alone leads.
Layout innermost_reduced(const Redistribution& move) {
  const std::optional<ReduceOp> op = innermost_op(move);
  std::vector<Placement> placements = move.source.placements();
  for (size_t dim = placements.size(); dim-- > 0;) {
    if (!pending(move, dim)) continue;
    if (std::get<Partial>(placements[dim]).op != *op) break;
    placements[dim] = Replicate{};
  }
  return move.source.with_placements(std::move(placements));
}

/// True if a reduction of another op waits behind the innermost one: then they go one after the other, as their
/// gradients differ.
bool has_unlike_reductions(const Redistribution& move) {
  const std::optional<ReduceOp> op = innermost_op(move);
  for (size_t dim = 0; dim < move.source.placements().size(); ++dim) {
    if (!pending(move, dim)) continue;
    const ReduceOp other = std::get<Partial>(move.source.placements()[dim]).op;
    if (is_extreme(other) != is_extreme(*op) || (is_extreme(other) && other != *op)) return true;
  }
  return false;
}

/// What a gradient on a dim of this placement may be said to be.
bool may_be_gradient_of(const Placement& gradient, const Placement& placement) {
  if (gradient == placement) return true;
  if (!is_replicate(placement) && !is_partial(placement)) return false;
  const auto* partial = std::get_if<Partial>(&gradient);
  return is_replicate(gradient) || (partial != nullptr && !is_extreme(partial->op));
}

}  // namespace

Layout gradient_layout(const Layout& layout) {
  if (!layout.has_partial()) return layout;
  return changed_layout(
      layout, [](const Placement& placement) { return is_partial(placement) ? Placement(Replicate{}) : placement; });
}

Layout leaving_layout(const Layout& layout) {
  return changed_layout(layout, [](const Placement& placement) {
    if (is_replicate(placement)) return Placement(Partial(ReduceOp::kSum));
    return is_partial(placement) ? Placement(Replicate{}) : placement;
  });
}

Layout outside_gradient_layout(const Layout& layout, const std::optional<std::vector<Placement>>& grad_placements,
                               int64_t ndim) {
  if (!grad_placements) return leaving_layout(layout);
  HP_CHECK(grad_placements->size() == layout.placements().size(), kInvalidArgument, "grad_placements ",
           short_text(*grad_placements), " are ", grad_placements->size(), " but the mesh has ", layout.mesh().ndim(),
           " dims");
  Layout gradient = Layout::with_partial_beside_ragged(layout.mesh(), *grad_placements).folded(ndim);
  for (size_t dim = 0; dim < grad_placements->size(); ++dim) {
    const Placement& given = gradient.placements()[dim];
    const Placement& own = layout.placements()[dim];
    HP_CHECK(
        may_be_gradient_of(given, own), kInvalidArgument, "grad_placements have ", to_string(given), " on mesh dim '",
        layout.mesh().names()[dim], "' where the tensor is ", to_string(own),
        "; the gradient must lie as the tensor, or be Replicate(), Partial(sum) or Partial(avg) where that is whole");
  }
  return gradient;
}

Redistribution folded(const Redistribution& move) {
  const auto ndim = static_cast<int64_t>(move.shape.size());
  return {move.source.folded(ndim), move.target.folded(ndim), move.incoming.folded(ndim), move.shape};
}

bool is_identity(const Redistribution& move) {
  return move.source == move.target && move.incoming == gradient_layout(move.source);
}

std::vector<Redistribution> parts_of(const Redistribution& move) {
  std::vector<Redistribution> parts;
  Redistribution rest = move;
  while (has_unlike_reductions(rest)) {
    const Layout between = innermost_reduced(rest);
    parts.push_back({rest.source, between, gradient_layout(between), rest.shape});
    rest.source = between;
  }
  parts.push_back(std::move(rest));
  return parts;
}

Redistribution backward_of(const Redistribution& move) {
  const Layout share = gradient_layout(move.source);
  Redistribution back{move.incoming, share, share, move.shape};
  const std::optional<ReduceOp> op = innermost_op(move);
  if (!op || !is_extreme(*op)) return back;
  std::vector<int64_t> weighed;
  for (size_t dim = 0; dim < share.placements().size(); ++dim) {
    if (pending(move, dim)) weighed.push_back(static_cast<int64_t>(dim));
  }
  back.incoming = use_of_gradient(share, weighed, move.shape).incoming;
  return back;
}

std::vector<int64_t> linear_partial_dims(const Layout& layout) {
  std::vector<int64_t> dims;
  for (size_t dim = 0; dim < layout.placements().size(); ++dim) {
    const auto* partial = std::get_if<Partial>(&layout.placements()[dim]);
    if (partial != nullptr && !is_extreme(partial->op)) dims.push_back(static_cast<int64_t>(dim));
  }
  return dims;
}

Redistribution use_of_gradient(const Layout& layout, std::span<const int64_t> mesh_dims, Dims shape) {
  const Layout alike = gradient_layout(layout);
  std::vector<Placement> shares = alike.placements();
  for (const int64_t dim : mesh_dims) shares[static_cast<size_t>(dim)] = Partial(ReduceOp::kSum);
  return {alike, alike, Layout::with_partial_beside_ragged(layout.mesh(), std::move(shares)), std::move(shape)};
}

int64_t gradient_divisor(const Redistribution& move) {
  int64_t divisor = 1;
  for (size_t dim = 0; dim < move.source.placements().size(); ++dim) {
    const auto* partial = std::get_if<Partial>(&move.source.placements()[dim]);
    if (partial != nullptr && partial->op == ReduceOp::kAvg && pending(move, dim)) {
      divisor = checked_mul(divisor, move.source.mesh().size(static_cast<int64_t>(dim)));
    }
  }
  return divisor;
}

std::optional<ExtremeGradient> extreme_gradient(const Redistribution& move) {
  const std::optional<ReduceOp> op = innermost_op(move);
  if (!op || !is_extreme(*op)) return std::nullopt;
  Layout reduced = innermost_reduced(move);
  Layout counted = changed_layout(move.source, [](const Placement& placement) {
    return is_partial(placement) ? Placement(Partial(ReduceOp::kSum)) : placement;
  });
  std::vector<Placement> everywhere = counted.placements();
  for (size_t dim = 0; dim < everywhere.size(); ++dim) {
    if (is_replicate(reduced.placements()[dim])) everywhere[dim] = Replicate{};
  }
  Layout replicated = counted.with_placements(std::move(everywhere));
  return ExtremeGradient{std::move(reduced), std::move(counted), std::move(replicated)};
}

}  // namespace hyper_parallel
