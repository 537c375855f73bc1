#include "hyper_parallel/operations/propagate.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/redistribute/traffic.h"

namespace hyper_parallel {
namespace {

// What one mesh dim is used for.
struct Choice {
  enum class Use { kWhole, kAxis, kPending };
  Use use = Use::kWhole;
  int axis = kNoAxis;
  ReduceOp op = ReduceOp::kSum;
  friend bool operator==(const Choice&, const Choice&) = default;
};

using Choices = std::vector<Choice>;  // one per mesh dim

std::optional<int64_t> dim_along(const Operand& operand, int axis) {
  const auto found = std::ranges::find(operand.axes, axis);
  if (found == operand.axes.end()) return std::nullopt;
  return found - operand.axes.begin();
}

const Partial* partial_on(const GivenOperand& operand, size_t mesh_dim) {
  return std::get_if<Partial>(&operand.layout.placements()[mesh_dim]);
}

void check_meshes(std::string_view operation, std::span<const GivenOperand> operands) {
  for (const GivenOperand& operand : operands.subspan(1)) {
    const GivenOperand& first = operands.front();
    HP_CHECK(operand.layout.mesh() == first.layout.mesh(), kInvalidArgument, "operation '", operation, "': argument '",
             operand.name, "' lies on ", to_string(operand.layout.mesh()), " but argument '", first.name, "' on ",
             to_string(first.layout.mesh()), "; the operands' meshes must be equal");
  }
}

class Propagator {
 public:
  Propagator(std::string_view operation, const Rule& rule, std::span<const GivenOperand> operands,
             std::optional<size_t> written)
      : operation_(operation),
        rule_(rule),
        operands_(operands),
        written_(written),
        mesh_(operands.front().layout.mesh()) {}

  Propagation run() const {
    std::vector<Choices> candidates;
    for (size_t dim = 0; dim < static_cast<size_t>(mesh_.ndim()); ++dim) candidates.push_back(candidates_on(dim));
    std::optional<Propagation> best;
    Cost best_cost;
    for_each_combination(candidates, [&](const Choices& choices) {
      if (!is_possible(choices)) return true;
      Propagation propagation = apply(choices);
      if (!leaves_written(propagation)) return true;
      const Cost cost = cost_of(propagation);
      if (!best || cost < best_cost) {
        best = std::move(propagation);
        best_cost = cost;
      }
      return best_cost != Cost{};
    });
    if (!best) refuse_written();
    return std::move(*best);
  }

 private:
  using Cost = std::tuple<int64_t, int64_t>;  // bytes received by all ranks, rounds

  // Visits every way to take one candidate per mesh dim, the first candidates first, until `visit` returns false.
  template <typename Visit>
  static void for_each_combination(const std::vector<Choices>& candidates, const Visit& visit) {
    std::vector<size_t> index(candidates.size(), 0);
    Choices choices;
    for (const Choices& on_dim : candidates) choices.push_back(on_dim.front());
    while (visit(choices)) {
      size_t dim = candidates.size();
      while (dim-- > 0) {
        index[dim] = index[dim] + 1 == candidates[dim].size() ? 0 : index[dim] + 1;
        choices[dim] = candidates[dim][index[dim]];
        if (index[dim] != 0) break;
      }
      if (dim == static_cast<size_t>(-1)) return;
    }
  }

  Choices candidates_on(size_t mesh_dim) const {
    for (const GivenOperand& operand : operands_) {
      if (const Partial* partial = partial_on(operand, mesh_dim)) return {pending_on(mesh_dim, operand, partial->op)};
    }
    Choices candidates;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const auto* shard = std::get_if<Shard>(&operands_[i].layout.placements()[mesh_dim]);
      const int axis = shard == nullptr ? kNoAxis : axis_of(i, *shard);
      const Choice choice{Choice::Use::kAxis, axis};
      const bool known = std::ranges::find(candidates, choice) != candidates.end();
      if (axis != kNoAxis && !known && may_be_cut(axis, mesh_dim)) candidates.push_back(choice);
    }
    candidates.push_back({});
    return candidates;
  }

  int axis_of(size_t operand, const Shard& shard) const {
    return rule_.operands[operand].axes[static_cast<size_t>(shard.dim)];
  }

  // A reduced axis makes the results Partial: only where no operand would have to move for it, so that whether they are
  // does not depend on sizes.
  bool may_be_cut(int axis, size_t mesh_dim) const {
    if (rule_.axes[static_cast<size_t>(axis)].use == Axis::Use::kParallel) return true;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const Placement& placement = operands_[i].layout.placements()[mesh_dim];
      const auto* shard = std::get_if<Shard>(&placement);
      const bool whole = is_replicate(placement);
      if (dim_along(rule_.operands[i], axis) && !whole && (shard == nullptr || axis_of(i, *shard) != axis))
        return false;
    }
    return true;
  }

  Choice pending_on(size_t mesh_dim, const GivenOperand& carrier, ReduceOp op) const {
    const auto alike = std::ranges::count_if(operands_, [&](const GivenOperand& operand) {
      const Partial* partial = partial_on(operand, mesh_dim);
      return partial != nullptr && partial->op == op;
    });
    const auto pending = std::ranges::count_if(
        operands_, [&](const GivenOperand& operand) { return partial_on(operand, mesh_dim) != nullptr; });
    const auto count = static_cast<std::ptrdiff_t>(operands_.size());
    bool commutes = rule_.pending.ops.contains(op);
    switch (rule_.pending.carriers) {
      case Pending::Carriers::kNone:
        commutes = false;
        break;
      case Pending::Carriers::kEvery:
        commutes = commutes && alike == count;
        break;
      case Pending::Carriers::kOne:
        commutes = commutes && pending == 1 && is_factor(carrier) && (op != ReduceOp::kAvg || !has_addend());
        break;
    }
    HP_CHECK(commutes, kInvalidArgument, "operation '", operation_,
             "' with these arguments does not commute with the pending reduction of argument '", carrier.name,
             "', whose placements are ", short_text(carrier.layout.placements()),
             "; redistribute it to Replicate() first");
    return {Choice::Use::kPending, kNoAxis, op};
  }

  bool is_factor(const GivenOperand& operand) const {
    return rule_.operands[static_cast<size_t>(&operand - operands_.data())].term == Operand::Term::kFactor;
  }

  bool has_addend() const {
    return std::ranges::any_of(rule_.operands,
                               [](const Operand& operand) { return operand.term == Operand::Term::kAddend; });
  }

  // Whether the axes that must be cut evenly are.
  bool is_possible(const Choices& choices) const {
    for (size_t axis = 0; axis < rule_.axes.size(); ++axis) {
      if (rule_.axes[axis].cut == Axis::Cut::kAny) continue;
      int64_t blocks = 1;
      for (size_t dim = 0; dim < choices.size(); ++dim) {
        if (choices[dim].axis == static_cast<int>(axis)) {
          blocks = checked_mul(blocks, mesh_.size(static_cast<int64_t>(dim)));
        }
      }
      if (rule_.axes[axis].cells % blocks != 0) return false;
    }
    return true;
  }

  Propagation apply(const Choices& choices) const {
    Propagation propagation;
    for (size_t i = 0; i < operands_.size(); ++i) propagation.operands.push_back(prepared(i, choices));
    for (const Operand& result : rule_.results) propagation.results.push_back(result_layout(result, choices));
    return propagation;
  }

  PreparedOperand prepared(size_t index, const Choices& choices) const {
    const Operand& operand = rule_.operands[index];
    const Layout& given = operands_[index].layout;
    std::vector<Placement> placements;
    std::vector<Placement> gradient;
    std::vector<int64_t> added_once;
    for (size_t dim = 0; dim < choices.size(); ++dim) {
      const Choice& choice = choices[dim];
      const auto along = choice.use == Choice::Use::kAxis ? dim_along(operand, choice.axis) : std::nullopt;
      const bool carries = choice.use == Choice::Use::kPending && partial_on(operands_[index], dim) != nullptr;
      const bool shares_work = choice.use != Choice::Use::kWhole && !along && !carries;
      placements.push_back(along     ? Placement(Shard(*along))
                           : carries ? Placement(Partial(choice.op))
                                     : Placement(Replicate{}));
      gradient.push_back(along         ? Placement(Shard(*along))
                         : shares_work ? Placement(Partial(ReduceOp::kSum))
                                       : Placement(Replicate{}));
      if (shares_work && operand.term == Operand::Term::kAddend && gives_shares(choice)) {
        added_once.push_back(static_cast<int64_t>(dim));
      }
    }
    return {placements == given.placements() ? given : given.with_placements(std::move(placements)),
            given.with_placements(std::move(gradient)), std::move(added_once)};
  }

  // Whether the results are Partial on a mesh dim of this choice.
  bool gives_shares(const Choice& choice) const {
    return choice.use == Choice::Use::kPending ||
           (choice.use == Choice::Use::kAxis &&
            rule_.axes[static_cast<size_t>(choice.axis)].use == Axis::Use::kReduced);
  }

  Layout result_layout(const Operand& result, const Choices& choices) const {
    std::vector<Placement> placements;
    for (const Choice& choice : choices) {
      switch (choice.use) {
        case Choice::Use::kWhole:
          placements.emplace_back(Replicate{});
          break;
        case Choice::Use::kPending:
          placements.emplace_back(Partial(choice.op));
          break;
        case Choice::Use::kAxis:
          const auto along = dim_along(result, choice.axis);
          HP_DCHECK(along.has_value() != gives_shares(choice));
          placements.push_back(along ? Placement(Shard(*along)) : Placement(Partial(rule_.reduction)));
          break;
      }
    }
    for (const GivenOperand& operand : operands_) {
      if (operand.layout.placements() == placements) return operand.layout;
    }
    return operands_.front().layout.with_placements(std::move(placements));
  }

  bool leaves_written(const Propagation& propagation) const {
    if (!written_) return true;
    const Layout& layout = operands_[*written_].layout;
    return propagation.operands[*written_].layout == layout && propagation.results.front() == layout;
  }

  Cost cost_of(const Propagation& propagation) const {
    int64_t bytes = 0;
    int64_t rounds = 0;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const Layout& from = operands_[i].layout;
      const Layout& to = propagation.operands[i].layout;
      if (from == to) continue;
      const MeshTraffic cost = mesh_traffic(plan_redistribution(from, to, rule_.operands[i].shape));
      bytes = checked_add(bytes, checked_mul(cost.total_received, operands_[i].item_bytes));
      rounds += cost.rounds;
    }
    return {bytes, rounds};
  }

  [[noreturn]] void refuse_written() const {
    const GivenOperand& operand = operands_[*written_];
    raise(ErrorCode::kInvalidArgument, "operation '", operation_, "': argument '", operand.name, "' of shape ",
          tuple_text(rule_.operands[*written_].shape), " is written, but the result of shape ",
          tuple_text(rule_.results.front().shape), " cannot lie as it does: ", short_text(operand.layout.placements()),
          "; redistribute it or the other operands");
  }

  std::string_view operation_;
  const Rule& rule_;
  std::span<const GivenOperand> operands_;
  std::optional<size_t> written_;
  const DeviceMesh& mesh_;
};

}  // namespace

Propagation propagate(std::string_view operation, const Rule& rule, std::span<const GivenOperand> operands,
                      std::optional<size_t> written) {
  HP_DCHECK(!operands.empty() && operands.size() == rule.operands.size());
  check_meshes(operation, operands);
  return Propagator(operation, rule, operands, written).run();
}

}  // namespace hyper_parallel
