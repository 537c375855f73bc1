#include "hyper_parallel/redistribute/rank_plan.h"

#include <algorithm>
#include <sstream>

#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

using Fixed = std::vector<std::optional<int64_t>>;

/// The mesh dims that do not split `from`, each fixed to the value of `coordinate`: there a sender shares it with its
/// receiver.
Fixed shared_dims(const Distribution& from, const Dims& coordinate) {
  Fixed fixed(coordinate.size());
  for (size_t dim = 0; dim < coordinate.size(); ++dim) {
    if (!splits(from.dim_splits()[dim])) fixed[dim] = coordinate[dim];
  }
  return fixed;
}

bool agrees(const Fixed& fixed, const Dims& coordinate) {
  for (size_t dim = 0; dim < fixed.size(); ++dim) {
    if (fixed[dim] && *fixed[dim] != coordinate[dim]) return false;
  }
  return true;
}

enum class Side { kSource, kTarget };

/// Adds the message of these pieces, unless there are none.
void add_transfer(std::vector<Transfer>& transfers, int64_t peer, std::vector<Piece> pieces, Side side) {
  if (pieces.empty()) return;
  Transfer transfer{peer, 0, {}};
  transfer.pieces.reserve(pieces.size());
  for (Piece& piece : pieces) {
    transfer.pieces.push_back(std::move(side == Side::kSource ? piece.in_a : piece.in_b));
    transfer.numel += transfer.pieces.back().numel();
  }
  transfers.push_back(std::move(transfer));
}

void add_copies(std::vector<LocalCopy>& copies, std::vector<Piece> pieces) {
  for (Piece& piece : pieces) copies.push_back({std::move(piece.in_a), std::move(piece.in_b)});
}

/// A rank's own coordinate in both meshes and what it owns in both distributions.
struct Ends {
  Ends(const Step& step, int64_t rank)
      : from_coordinate(*step.from.mesh().coordinate(rank)),
        to_coordinate(*step.to.mesh().coordinate(rank)),
        source(step.from.owned(from_coordinate)),
        target(step.to.owned(to_coordinate)) {}

  Dims from_coordinate;
  Dims to_coordinate;
  Region source;
  Region target;
};

void add_move_receives(RankStep& out, const Step& step, const Ends& own, int64_t rank) {
  const Dims& shape = step.from.shape();
  step.from.for_each_owner(own.target, shared_dims(step.from, own.from_coordinate),
                           [&](const Dims& coordinate, const Region& held) {
                             const int64_t sender = step.from.mesh().rank_at(coordinate);
                             auto pieces = intersect(held, own.target, shape);
                             if (sender == rank) {
                               add_copies(out.copies, std::move(pieces));
                             } else {
                               add_transfer(out.receives, sender, std::move(pieces), Side::kTarget);
                             }
                           });
}

void add_move_sends(RankStep& out, const Step& step, const Ends& own, int64_t rank) {
  const bool one_mesh = step.from.mesh() == step.to.mesh();
  const Fixed shared = shared_dims(step.from, own.from_coordinate);
  const Fixed none(own.to_coordinate.size());
  step.to.for_each_owner(own.source, one_mesh ? shared : none, [&](const Dims& coordinate, const Region& wanted) {
    const int64_t receiver = step.to.mesh().rank_at(coordinate);
    if (receiver == rank) return;
    if (!one_mesh && !agrees(shared, *step.from.mesh().coordinate(receiver))) return;
    add_transfer(out.sends, receiver, intersect(own.source, wanted, step.from.shape()), Side::kSource);
  });
}

void fill_move(RankStep& out, const Step& step, const Ends& own, int64_t rank) {
  add_move_receives(out, step, own, rank);
  if (!is_local(step)) add_move_sends(out, step, own, rank);
}

/// Calls `visit` with the coordinate of every member of the group along `dims` through `coordinate`, in mesh order.
template <typename Visit>
void for_each_member(const DeviceMesh& mesh, const std::vector<int64_t>& dims, Dims coordinate, const Visit& visit) {
  for (const int64_t dim : dims) coordinate[static_cast<size_t>(dim)] = 0;
  while (true) {
    visit(coordinate);
    size_t i = dims.size();
    while (i-- > 0) {
      int64_t& index = coordinate[static_cast<size_t>(dims[i])];
      if (++index < mesh.size(dims[i])) break;
      index = 0;
    }
    if (i == SIZE_MAX) return;
  }
}

/// The product of the sizes of the mesh dims that `reduce` averages over.
int64_t averaged_size(const Step& step, const Reduce& reduce) {
  int64_t size = 1;
  for (const int64_t dim : reduce.mesh_dims) {
    const auto& partial = std::get<Partial>(step.from.dim_splits()[static_cast<size_t>(dim)]);
    if (partial.op == ReduceOp::kAvg) size *= step.from.mesh().size(dim);
  }
  return size;
}

void fill_reduce(RankStep& out, const Step& step, const Reduce& reduce, const Ends& own, int64_t rank) {
  const Dims& shape = step.from.shape();
  out.combine = Combine{reduce.op, averaged_size(step, reduce), {}};
  // All members hold a share of the same region, so each sends the same pieces of this rank's target.
  const std::vector<Piece> own_pieces = intersect(own.source, own.target, shape);
  for_each_member(step.from.mesh(), reduce.mesh_dims, own.from_coordinate, [&](const Dims& member) {
    const int64_t peer = step.from.mesh().rank_at(member);
    out.combine->sources.push_back(peer);
    if (peer == rank) {
      add_copies(out.copies, own_pieces);
      return;
    }
    add_transfer(out.receives, peer, own_pieces, Side::kTarget);
    add_transfer(out.sends, peer, intersect(own.source, step.to.owned(member), shape), Side::kSource);
  });
}

void append_lines(std::ostringstream& out, std::string_view verb, const std::vector<Transfer>& transfers) {
  for (const Transfer& transfer : transfers) {
    std::vector<std::string> pieces;
    for (const StridedView& piece : transfer.pieces) pieces.push_back(to_string(piece));
    out << verb << " " << transfer.peer << ": " << transfer.numel << " elements " << join(pieces, " ") << "\n";
  }
}

}  // namespace

RankStep rank_step(const Step& step, int64_t rank) {
  const Ends own(step, rank);
  RankStep out;
  out.source_numel = own.source.numel();
  out.target_numel = own.target.numel();
  std::visit(Overloaded{
                 [&](const Move&) { fill_move(out, step, own, rank); },
                 [&](const Reduce& reduce) { fill_reduce(out, step, reduce, own, rank); },
             },
             step.action);
  return out;
}

RankPlan rank_plan(const Plan& plan, int64_t rank) {
  RankPlan out;
  if (!plan.source.mesh().contains(rank)) {
    out.target_shape = Dims{0};
    return out;
  }
  out.steps.reserve(plan.steps.size());
  for (const Step& step : plan.steps) out.steps.push_back(rank_step(step, rank));
  out.target_shape = plan.target.local_shape(*plan.target.mesh().coordinate(rank));
  return out;
}

std::string to_string(const RankStep& step) {
  std::ostringstream out;
  append_lines(out, "send to", step.sends);
  append_lines(out, "receive from", step.receives);
  for (const LocalCopy& copy : step.copies) {
    out << "keep " << copy.from.numel() << " elements " << to_string(copy.from) << " -> " << to_string(copy.to) << "\n";
  }
  if (step.combine) {
    out << "combine by " << to_string(step.combine->op) << " in the order of ranks "
        << tuple_text(step.combine->sources);
    if (step.combine->op == ReduceOp::kAvg) out << ", divided by " << step.combine->divisor;
    out << "\n";
  }
  return std::move(out).str();
}

}  // namespace hyper_parallel
