// Every plan, run by the simulator, against the element-by-element truth.

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/simulate/simulator.h"
#include "tests/property/random_cases.h"
#include "tests/reference/from_layout.h"

namespace hyper_parallel::test {
namespace {

using reference::Scheme;
using reference::scheme_of;

/// Different, not zero, of both signs, and multiples of the mesh's size: every reduction of shares is exact.
std::vector<double> values_for(const Scheme& scheme) {
  std::vector<double> values;
  for (int64_t element = 1; element <= reference::element_count(scheme); ++element) {
    const int64_t sign = element % 2 == 0 ? 1 : -1;
    values.push_back(static_cast<double>(sign * element * static_cast<int64_t>(scheme.ranks.size())));
  }
  return values;
}

/// Fails unless the plan takes any shares of the values to shares of the same values. The truth checks each rank's
/// length, that each element is where it belongs, and that replicas are equal.
void check_plan(const Redistribution& pair, int64_t share_seed) {
  const Scheme source = scheme_of(pair.source, pair.shape.to_vector());
  const Scheme target = scheme_of(pair.target, pair.shape.to_vector());
  std::mt19937_64 random(static_cast<uint64_t>(share_seed));
  const auto draw_share = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const std::vector<double> values = values_for(source);
  const Plan plan = plan_redistribution(pair.source, pair.target, pair.shape);
  const Shares shares = simulate(plan, reference::distribute(source, values, draw_share));
  RC_ASSERT(shares.size() == target.ranks.size());
  RC_ASSERT(reference::reduce(target, shares) == values);
}

bool has_shard(const Layout& layout) { return std::ranges::any_of(layout.placements(), is_shard); }

bool is_nested(const Layout& layout) {
  const auto& placements = layout.placements();
  return std::ranges::any_of(placements, [&](const Placement& placement) {
    return is_shard(placement) && std::ranges::count(placements, placement) > 1;
  });
}

bool has_unlike_ops(const Layout& layout) {
  const auto& placements = layout.placements();
  const auto first = std::ranges::find_if(placements, is_partial);
  return std::any_of(first, placements.end(),
                     [&](const Placement& placement) { return is_partial(placement) && placement != *first; });
}

/// How often the random pairs show what the planner must get right: a generator that lost a kind would pass every
/// property.
class Coverage {
 public:
  void add(const Redistribution& pair) {
    const auto& from = pair.source.ragged_shard();
    const auto& to = pair.target.ragged_shard();
    ++pairs_["any"];
    count("ragged to ragged on a mesh dim", from && to && from->mesh_dim == to->mesh_dim);
    count("ragged to ragged across mesh dims", from && to && from->mesh_dim != to->mesh_dim);
    count("ragged and Shard", (from && has_shard(pair.target)) || (to && has_shard(pair.source)));
    count("ragged from Partial", to && pair.source.has_partial());
    count("zero units", from && std::ranges::count(from->placement.local_units(), 0) > 0);
    count("nested Shard", is_nested(pair.source) || is_nested(pair.target));
    count("Partial of unlike ops", has_unlike_ops(pair.source));
    count("Partial that stays", pair.target.has_partial());
    count("another mesh", !(pair.source.mesh() == pair.target.mesh()));
    count("ranks out of order", !std::ranges::is_sorted(pair.source.mesh().ranks()));
    count("an empty tensor", std::ranges::count(pair.shape, 0) > 0);
    count("a tensor of no dims", pair.shape.empty());
  }

  /// Fails the test unless each kind makes up a hundredth of the pairs.
  void require(const std::vector<std::string>& kinds) const {
    if (testing::Test::HasFailure()) return;  // the pairs of a failed property are few and alike
    for (const std::string& kind : kinds) EXPECT_GE(pairs_.at(kind) * 100, pairs_.at("any")) << kind;
  }

 private:
  void count(const std::string& kind, bool shown) { pairs_[kind] += shown ? 1 : 0; }

  std::map<std::string, int64_t> pairs_;
};

TEST(Plan, SimulatedWithoutPartial_GivesTheTruth) {
  Coverage coverage;
  check_property(20'000, [&] {
    const Redistribution pair = *drawn(draw_redistribution_without_partial);
    coverage.add(pair);
    check_plan(pair, 0);
  });
  coverage.require({"ragged to ragged on a mesh dim", "ragged to ragged across mesh dims", "ragged and Shard",
                    "zero units", "nested Shard", "another mesh", "ranks out of order", "an empty tensor",
                    "a tensor of no dims"});
}

TEST(Plan, SimulatedFromPartial_GivesTheTruth) {
  Coverage coverage;
  check_property(10'000, [&] {
    const Redistribution pair = *drawn(draw_redistribution_of_partial);
    coverage.add(pair);
    check_plan(pair, *drawn([] { return draw(0, 1'000'000); }));
  });
  coverage.require({"ragged from Partial", "Partial of unlike ops", "Partial that stays", "another mesh",
                    "nested Shard", "ranks out of order", "an empty tensor", "a tensor of no dims"});
}

/// Distributions that are no layout have no truth; the simulator's own shares stand in, which must agree with each
/// other.
TEST(Plan, SimulatedBetweenAnyDistributions_KeepsTheValues) {
  check_property(5000, [] {
    const DistributionPair pair = *drawn(draw_distributions);
    std::vector<double> values;
    for (int64_t cell = 1; cell <= whole_box(pair.source.shape()).numel(); ++cell) {
      values.push_back(static_cast<double>(cell * pair.source.mesh().size()));
    }
    const Plan plan = plan_distribution(pair.source, pair.target);
    RC_ASSERT(simulate(plan, distribute_values(pair.source, values)) == distribute_values(pair.target, values));
  });
}

TEST(DistributedValues, OfALayout_AreSharesOfTheValues) {
  check_property(2000, [] {
    const LayoutOfShape value = *drawn(draw_layout_of_shape);
    const Scheme scheme = scheme_of(value.layout, value.shape.to_vector());
    const std::vector<double> values = values_for(scheme);
    const Shares shares = distribute_values(Distribution(value.layout, value.shape), values);
    RC_ASSERT(reference::reduce(scheme, shares) == values);
  });
}

TEST(Plan, WithoutPartial_IsAtMostOneMove) {
  check_property(2000, [] {
    const Redistribution pair = *drawn(draw_redistribution_without_partial);
    const Plan plan = plan_redistribution(pair.source, pair.target, pair.shape);
    RC_ASSERT(plan.steps.size() <= 1u);
    for (const Step& step : plan.steps) RC_ASSERT(std::holds_alternative<Move>(step.action));
  });
}

TEST(Plan, StepsLeadFromSourceToTarget) {
  check_property(2000, [] {
    const Redistribution pair = *drawn(draw_redistribution_of_partial);
    const Plan plan = plan_redistribution(pair.source, pair.target, pair.shape);
    RC_ASSERT(plan.source == Distribution(pair.source, pair.shape));
    RC_ASSERT(plan.target == Distribution(pair.target, pair.shape));
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      RC_ASSERT(plan.steps[i].from == (i == 0 ? plan.source : plan.steps[i - 1].to));
    }
  });
}

TEST(Plan, ToAnEqualLayout_HasNoStep) {
  check_property(2000, [] {
    const LayoutOfShape value = *drawn(draw_layout_of_shape);
    const Layout rebuilt(value.layout.mesh(), value.layout.placements());
    RC_ASSERT(plan_redistribution(value.layout, rebuilt, value.shape).steps.empty());
    const Layout folded = value.layout.folded(static_cast<int64_t>(value.shape.size()));
    RC_ASSERT(plan_redistribution(value.layout, folded, value.shape).steps.empty());
  });
}

TEST(Plan, MadeTwice_IsEqualAndReadsTheSame) {
  check_property(2000, [] {
    const Redistribution pair = *drawn(
        [] { return draw_chance(50) ? draw_redistribution_of_partial() : draw_redistribution_without_partial(); });
    const Plan first = plan_redistribution(pair.source, pair.target, pair.shape);
    // Parsed layouts share no memory with the first ones.
    const Plan second =
        plan_redistribution(parse_layout(to_string(pair.source)), parse_layout(to_string(pair.target)), pair.shape);
    RC_ASSERT(first == second);
    RC_ASSERT(to_string(first) == to_string(second));
  });
}

/// The message of the error that planning raises; fails unless it is kInvalidArgument.
std::string refusal(const Layout& source, const Layout& target, const Dims& shape) {
  try {
    plan_redistribution(source, target, shape);
  } catch (const Error& error) {
    RC_ASSERT(error.code() == ErrorCode::kInvalidArgument);
    return error.what();
  }
  RC_FAIL("the planner accepted what it must refuse");
}

TEST(Plan, AnythingToPartial_Raises) {
  check_property(1000, [] {
    const Redistribution pair = *drawn([] {
      const Redistribution reverse = draw_redistribution_of_partial();
      return Redistribution{draw_layout_without_partial(reverse.source.mesh(), reverse.shape), reverse.source,
                            reverse.shape};
    });
    const std::string message = refusal(pair.source, pair.target, pair.shape);
    RC_ASSERT(message.find("nothing but the same Partial becomes Partial(") != std::string::npos);
  });
}

TEST(Plan, PartialToAnotherPartial_Raises) {
  for (const ReduceOp from : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
    for (const ReduceOp to : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
      if (from == to) continue;
      const DeviceMesh mesh({2}, {"dp"});
      EXPECT_THROW(plan_redistribution(Layout(mesh, {Partial(from)}), Layout(mesh, {Partial(to)}), {4}), Error);
    }
  }
}

TEST(Plan, OuterReductionThatOvertakesAnInnerOneOfAnotherKind_Raises) {
  const DeviceMesh mesh({2, 3}, {"dp", "tp"});
  const auto is_linear = [](ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; };
  for (const ReduceOp outer : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
    for (const ReduceOp inner : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
      const Layout source(mesh, {Partial(outer), Partial(inner)});
      const Layout target(mesh, {Replicate{}, Partial(inner)});
      if (outer == inner || (is_linear(outer) && is_linear(inner))) {
        EXPECT_NO_THROW(plan_redistribution(source, target, {4}));
      } else {
        EXPECT_THROW(plan_redistribution(source, target, {4}), Error);
      }
    }
  }
}

TEST(Plan, RaggedToAnotherMesh_Raises) {
  check_property(500, [] {
    const Redistribution pair = *drawn([] {
      const DeviceMesh mesh = draw_mesh();
      const Dims shape = draw_shape(1);
      const Layout ragged = draw_ragged_layout(mesh, shape);
      const Layout other = draw_normal_layout(draw_mesh_over_ranks_of(mesh), shape);
      return draw_chance(50) ? Redistribution{ragged, other, shape} : Redistribution{other, ragged, shape};
    });
    RC_PRE(!(pair.source.mesh() == pair.target.mesh()));
    const std::string message = refusal(pair.source, pair.target, pair.shape);
    RC_ASSERT(message.find("a RaggedShard stays on its mesh") != std::string::npos);
  });
}

}  // namespace
}  // namespace hyper_parallel::test
