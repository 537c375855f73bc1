// Every pair of normal layouts on three small meshes, one after the other: what may be planned, that the plan gives the
// truth, and what it receives beside the least that anybody could. plan_property.cc and traffic_property.cc draw pairs
// of every kind on any mesh; here no pair of these meshes is left out, and a table sums them up.

#include <algorithm>
#include <bitset>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/redistribute/traffic.h"
#include "hyper_parallel/simulate/simulator.h"
#include "tests/property/property.h"
#include "tests/reference/from_layout.h"

namespace hyper_parallel::test {
namespace {

using reference::Scheme;
using reference::scheme_of;

// No dim of the first splits evenly and nested shards leave ranks without rows; every dim of the second does.
const Dims kUneven{5, 7, 3};
const Dims kEven{24, 24, 24};

using Elements = std::bitset<5 * 7 * 3>;

std::vector<Placement> plain_placements() { return {Replicate{}, Shard(0), Shard(1), Shard(2)}; }

std::vector<Placement> placements_with(const std::vector<ReduceOp>& ops) {
  std::vector<Placement> placements = plain_placements();
  for (const ReduceOp op : ops) placements.emplace_back(Partial(op));
  return placements;
}

const std::vector<ReduceOp> kEveryOp{ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin};

/// Each way to give every mesh dim one of the placements.
std::vector<Layout> layouts_on(const DeviceMesh& mesh, const std::vector<Placement>& placements) {
  std::vector<std::vector<Placement>> all{{}};
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    std::vector<std::vector<Placement>> longer;
    for (const std::vector<Placement>& begun : all) {
      for (const Placement& placement : placements) {
        longer.push_back(begun);
        longer.back().push_back(placement);
      }
    }
    all = std::move(longer);
  }
  std::vector<Layout> layouts;
  for (std::vector<Placement>& each : all) layouts.emplace_back(mesh, std::move(each));
  return layouts;
}

/// A layout of a tensor of kUneven, and what the truth says of it.
struct Known {
  Layout layout;
  Scheme scheme;
  std::map<int64_t, Elements> owned;  // by rank
  Shares shares;                      // of values_on(mesh)
};

/// Different, not zero, of both signs, and multiples of the mesh's size: every reduction of shares is exact.
std::vector<double> values_on(const DeviceMesh& mesh) {
  std::vector<double> values;
  for (int64_t element = 1; element <= static_cast<int64_t>(Elements().size()); ++element) {
    values.push_back(static_cast<double>((element % 2 == 0 ? 1 : -1) * element * mesh.size()));
  }
  return values;
}

Known known(const Layout& layout) {
  std::mt19937_64 random(current_test_seed());
  const auto draw_share = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Known out{layout, scheme_of(layout, kUneven.to_vector()), {}, {}};
  for (const int64_t rank : out.scheme.ranks) {
    Elements& owned = out.owned[rank];
    for (const int64_t element : reference::owned_elements(out.scheme, rank)) owned.set(static_cast<size_t>(element));
  }
  out.shares = reference::distribute(out.scheme, values_on(layout.mesh()), draw_share);
  return out;
}

std::vector<Known> known_layouts(const DeviceMesh& mesh, const std::vector<Placement>& placements) {
  std::vector<Known> all;
  for (const Layout& layout : layouts_on(mesh, placements)) all.push_back(known(layout));
  return all;
}

/// The op that is still to be reduced on the mesh dim on the way to `target`; nothing if none is.
std::optional<ReduceOp> pending_op(const Layout& source, const Layout& target, size_t dim) {
  const Placement& placement = source.placements()[dim];
  const bool kept = source.mesh() == target.mesh() && placement == target.placements()[dim];
  if (!is_partial(placement) || kept) return std::nullopt;
  return std::get<Partial>(placement).op;
}

bool is_linear(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; }

bool commute(ReduceOp a, ReduceOp b) { return a == b || (is_linear(a) && is_linear(b)); }

/// The rule: what is Partial in the target is the same Partial in the source, and no reduction overtakes an unlike one
/// further in.
bool may_be_planned(const Layout& source, const Layout& target) {
  for (size_t dim = 0; dim < target.placements().size(); ++dim) {
    const bool same = source.mesh() == target.mesh() && source.placements()[dim] == target.placements()[dim];
    if (is_partial(target.placements()[dim]) && !same) return false;
  }
  for (size_t outer = 0; outer < source.placements().size(); ++outer) {
    const auto op = pending_op(source, target, outer);
    for (size_t inner = outer + 1; op && inner < source.placements().size(); ++inner) {
      const Placement& other = source.placements()[inner];
      const bool stays = is_partial(other) && !pending_op(source, target, inner);
      if (stays && !commute(*op, std::get<Partial>(other).op)) return false;
    }
  }
  return true;
}

enum class Kind { kNoReduction, kOneReduction, kUnlikeReductions };

Kind kind_of(const Layout& source, const Layout& target) {
  std::optional<ReduceOp> first;
  for (size_t dim = 0; dim < source.placements().size(); ++dim) {
    const auto op = pending_op(source, target, dim);
    if (op && first && !commute(*op, *first)) return Kind::kUnlikeReductions;
    if (op) first = op;
  }
  return first ? Kind::kOneReduction : Kind::kNoReduction;
}

std::string text_of(const Layout& source, const Layout& target) {
  return str_cat(short_text(source.placements()), " -> ", short_text(target.placements()));
}

/// What is received beside the bound, over pairs of one kind.
class Tally {
 public:
  void add(const MeshTraffic& cost, const std::string& pair) {
    const double ratio = cost.total_received == cost.lower_bound
                             ? 1
                             : static_cast<double>(cost.total_received) / static_cast<double>(cost.lower_bound);
    ratios_.push_back(ratio);
    if (ratio > worst_) worst_pair_ = pair;
    worst_ = std::max(worst_, ratio);
    most_rounds_ = std::max(most_rounds_, cost.rounds);
  }

  /// "pairs, at the bound, median and worst ratio, most rounds, the worst pair".
  std::string text() const {
    std::vector<double> sorted = ratios_;
    std::ranges::sort(sorted);
    std::ostringstream out;
    out << std::fixed << std::setprecision(2) << std::setw(7) << sorted.size() << std::setw(9)
        << std::ranges::count(sorted, 1.0) << std::setw(8) << sorted[sorted.size() / 2] << std::setw(7) << worst_
        << std::setw(8) << most_rounds_ << "  " << worst_pair_;
    return std::move(out).str();
  }

 private:
  std::vector<double> ratios_;
  double worst_ = 1;
  std::string worst_pair_;
  int64_t most_rounds_ = 0;
};

/// The table, a row for each mesh, shape and kind; printed when the last test of the suite has run.
class AllPairs : public ::testing::Test {
 protected:
  static void TearDownTestSuite() {
    if (table().empty()) return;
    std::cout << "received / lower bound over all pairs of normal layouts\n"
              << "mesh, shape                                                pairs at bound  median  worst  rounds\n";
    for (const auto& [row, tally] : table()) std::cout << std::left << std::setw(55) << row << tally.text() << "\n";
    table().clear();
  }

  static void count(const Plan& plan, Kind kind, const std::string& pair) {
    static constexpr const char* kNames[] = {"no reduction", "one reduction", "unlike reductions"};
    const DeviceMesh& mesh = plan.source.mesh();
    std::string row = str_cat(tuple_text(mesh.shape()));
    if (!(mesh == plan.target.mesh())) row += str_cat(" to ", tuple_text(plan.target.mesh().shape()));
    row += str_cat(", ", tuple_text(plan.source.shape()), ", ", kNames[static_cast<size_t>(kind)]);
    table()[row].add(mesh_traffic(plan), pair);
  }

 private:
  static std::map<std::string, Tally>& table() {
    static std::map<std::string, Tally> rows;
    return rows;
  }
};

/// What all ranks together own under the target and do not hold under the source, counted.
int64_t missing_elements(const Known& source, const Known& target) {
  size_t missing = 0;
  for (const auto& [rank, owned] : target.owned) missing += (owned & ~source.owned.at(rank)).count();
  return static_cast<int64_t>(missing);
}

/// The plan's shares are the truth's, and it never gathers what it then throws away: it reduces onto each rank what the
/// next step takes from there, and the one move, if any, ends in the target.
void expect_truth(const Plan& plan, const Known& source, const Known& target) {
  const Shares shares = simulate(plan, source.shares);
  if (target.layout.has_partial()) {
    EXPECT_EQ(reference::reduce(target.scheme, shares), values_on(target.layout.mesh()));
  } else {
    EXPECT_EQ(shares, target.shares);
  }
  for (size_t i = 0; i + 1 < plan.steps.size(); ++i) {
    EXPECT_TRUE(std::holds_alternative<Reduce>(plan.steps[i].action));
  }
}

void expect_cost(const Plan& plan, Kind kind, int64_t missing) {
  const MeshTraffic cost = mesh_traffic(plan);
  EXPECT_GE(cost.total_received, cost.lower_bound);
  if (kind == Kind::kUnlikeReductions) return;
  EXPECT_LE(cost.rounds, kind == Kind::kNoReduction ? 1 : 2);
  if (kind == Kind::kOneReduction) return;
  EXPECT_EQ(cost.total_received, missing);
  EXPECT_EQ(cost.lower_bound, missing);
}

class AllPairsOfMesh : public AllPairs {
 protected:
  /// Judges each pair that may be planned from a source to a target; of those with reductions one in `one_in`.
  void judge(const std::vector<Known>& sources, const std::vector<Known>& targets, int64_t one_in = 1) {
    int64_t with_reductions = 0;
    for (const Known& source : sources) {
      for (const Known& target : targets) {
        if (!may_be_planned(source.layout, target.layout)) continue;
        const Kind kind = kind_of(source.layout, target.layout);
        if (kind != Kind::kNoReduction && with_reductions++ % one_in != 0) continue;
        judge_pair(source, target, kind);
        if (HasFailure()) return;
      }
    }
  }

 private:
  void judge_pair(const Known& source, const Known& target, Kind kind) {
    const std::string pair = text_of(source.layout, target.layout);
    SCOPED_TRACE(pair);
    const Plan plan = plan_redistribution(source.layout, target.layout, kUneven);
    expect_truth(plan, source, target);
    expect_cost(plan, kind, missing_elements(source, target));
    count(plan, kind, pair);
    const Plan even = plan_redistribution(source.layout, target.layout, kEven);
    expect_cost(even, kind, mesh_traffic(even).lower_bound);
    count(even, kind, pair);
  }
};

const DeviceMesh& square() {
  static const DeviceMesh mesh({2, 2}, {"a", "b"});
  return mesh;
}

/// Two by three, over ranks that leave some out and are in no order.
const DeviceMesh& turned() {
  static const DeviceMesh mesh({2, 3}, {"a", "b"}, {4, 0, 9, 5, 3, 1});
  return mesh;
}

const DeviceMesh& cube() {
  static const DeviceMesh mesh({2, 2, 2}, {"a", "b", "c"});
  return mesh;
}

TEST_F(AllPairsOfMesh, OnTwoByTwo_GiveTheTruthForTheBound) {
  const std::vector<Known> all = known_layouts(square(), placements_with(kEveryOp));
  judge(all, all);
}

TEST_F(AllPairsOfMesh, OnTwoByThreeRanksInAnyOrder_GiveTheTruthForTheBound) {
  const std::vector<Known> all = known_layouts(turned(), placements_with(kEveryOp));
  judge(all, all);
}

/// 46 656 pairs may be planned; those without a reduction are all judged, of the others one in eleven.
TEST_F(AllPairsOfMesh, OnTwoByTwoByTwo_GiveTheTruthForTheBound) {
  const std::vector<Known> all = known_layouts(cube(), placements_with(kEveryOp));
  judge(all, all, 11);
}

TEST_F(AllPairsOfMesh, ToAnotherMeshOverTheSameRanks_GiveTheTruthForTheBound) {
  const DeviceMesh other({3, 2}, {"x", "y"}, {1, 9, 3, 0, 5, 4});
  judge(known_layouts(turned(), placements_with({ReduceOp::kSum, ReduceOp::kMax})),
        known_layouts(other, plain_placements()));
}

TEST_F(AllPairs, ThatMakeAPartial_Raise) {
  for (const auto& [mesh, ops] : {std::pair(square(), kEveryOp), std::pair(turned(), kEveryOp),
                                  std::pair(cube(), std::vector{ReduceOp::kSum, ReduceOp::kMax})}) {
    const std::vector<Layout> all = layouts_on(mesh, placements_with(ops));
    int64_t refused = 0;
    for (const Layout& source : all) {
      for (const Layout& target : all) {
        if (may_be_planned(source, target)) continue;
        ++refused;
        try {
          plan_redistribution(source, target, kUneven);
          ADD_FAILURE() << text_of(source, target) << " was planned";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << text_of(source, target);
        }
      }
    }
    EXPECT_GT(refused, static_cast<int64_t>(all.size()));
  }
}

TEST_F(AllPairs, ThatSwapTwoShards_AreOneAllToAll) {
  for (const DeviceMesh& mesh : {square(), turned(), cube()}) {
    for (const Layout& source : layouts_on(mesh, plain_placements())) {
      std::vector<Placement> placements = source.placements();
      std::swap(placements.front(), placements.back());
      if (!is_shard(placements.front()) || !is_shard(placements.back()) || placements.front() == placements.back())
        continue;
      const Plan plan = plan_redistribution(source, Layout(mesh, placements), kUneven);
      ASSERT_EQ(plan.steps.size(), 1u) << text_of(source, Layout(mesh, placements));
      EXPECT_EQ(action_text(plan.steps[0]), "all_to_all") << text_of(source, Layout(mesh, placements));
    }
  }
}

/// `target` with Partial(op) on the mesh dims of `chosen`; nothing unless these are Shards that nothing further in
/// shards again.
std::optional<Layout> before_reduce_scatter(const Layout& target, unsigned chosen, ReduceOp op) {
  std::vector<Placement> placements = target.placements();
  for (size_t dim = 0; dim < placements.size(); ++dim) {
    if ((chosen >> dim & 1U) == 0) continue;
    if (!is_shard(placements[dim])) return std::nullopt;
    for (size_t inner = dim + 1; inner < placements.size(); ++inner) {
      if (placements[inner] == placements[dim] && (chosen >> inner & 1U) == 0) return std::nullopt;
    }
  }
  for (size_t dim = 0; dim < placements.size(); ++dim) {
    if ((chosen >> dim & 1U) != 0) placements[dim] = Partial(op);
  }
  return Layout(target.mesh(), std::move(placements));
}

/// What is received where each rank takes the shares of what it owns from the rest of its group.
int64_t received_directly(const Layout& source, const Layout& target) {
  int64_t shares = 1;
  for (int64_t dim = 0; dim < source.mesh().ndim(); ++dim) {
    if (pending_op(source, target, static_cast<size_t>(dim))) shares *= source.mesh().size(dim);
  }
  int64_t received = 0;
  for (const int64_t rank : target.mesh().ranks()) {
    const auto owned = reference::owned_elements(scheme_of(target, kUneven.to_vector()), rank);
    received += static_cast<int64_t>(owned.size()) * (shares - 1);
  }
  return received;
}

void expect_reduce_scatter(const Layout& source, const Layout& target) {
  SCOPED_TRACE(text_of(source, target));
  const Plan plan = plan_redistribution(source, target, kUneven);
  const int64_t received = mesh_traffic(plan).total_received;
  const int64_t directly = received_directly(source, target);
  ASSERT_FALSE(plan.steps.empty());
  EXPECT_TRUE(std::holds_alternative<Reduce>(plan.steps[0].action));
  // Bytes come before rounds: replicas share the work where that receives less.
  EXPECT_LE(received, directly);
  EXPECT_EQ(plan.steps.size() == 1, received == directly);
  const bool has_replicas = std::ranges::any_of(target.placements(), is_replicate);
  EXPECT_TRUE(has_replicas || plan.steps.size() == 1);
}

TEST_F(AllPairs, FromPartialToShard_AreOneReduceScatterForEveryDim) {
  for (const DeviceMesh& mesh : {square(), turned(), cube()}) {
    for (const Layout& target : layouts_on(mesh, plain_placements())) {
      for (unsigned chosen = 1; chosen < 1U << mesh.ndim(); ++chosen) {
        for (const ReduceOp op : kEveryOp) {
          const auto source = before_reduce_scatter(target, chosen, op);
          if (source) expect_reduce_scatter(*source, target);
          if (HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hyper_parallel::test
