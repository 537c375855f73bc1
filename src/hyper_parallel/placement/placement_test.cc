#include "hyper_parallel/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;

const std::vector<ReduceOp> kReduceOps = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin};

/// Placements that all differ from each other.
std::vector<Placement> unlike_placements() {
  std::vector<Placement> placements = {Replicate{},
                                       Shard(0),
                                       Shard(1),
                                       Shard(-1),
                                       RaggedShard({0}, {1, 2}),
                                       RaggedShard({0}, {2, 1}),
                                       RaggedShard({0, 1}, {1, 2}),
                                       RaggedShard({0}, {1, 2, 0}),
                                       RaggedShard({0}, {2, 4})};
  for (const ReduceOp op : kReduceOps) placements.emplace_back(Partial(op));
  return placements;
}

TEST(ReduceOp, Text_RoundTrips) {
  EXPECT_EQ(to_string(ReduceOp::kSum), "sum");
  EXPECT_EQ(to_string(ReduceOp::kAvg), "avg");
  EXPECT_EQ(to_string(ReduceOp::kMax), "max");
  EXPECT_EQ(to_string(ReduceOp::kMin), "min");
  for (const ReduceOp op : kReduceOps) EXPECT_EQ(parse_reduce_op(to_string(op)), op);
}

TEST(ReduceOp, Unknown_Raises) {
  EXPECT_EQ(error_of([] { parse_reduce_op("prod"); }),
            "InvalidArgument: Partial op is 'prod' but must be one of sum, avg, max, min");
  EXPECT_EQ(error_of([] { parse_reduce_op("SUM"); }),
            "InvalidArgument: Partial op is 'SUM' but must be one of sum, avg, max, min");
  EXPECT_EQ(error_of([] { parse_reduce_op(""); }),
            "InvalidArgument: Partial op is '' but must be one of sum, avg, max, min");
}

TEST(Partial, IsASumUnlessSaid) { EXPECT_EQ(Partial{}, Partial(ReduceOp::kSum)); }

TEST(RaggedShard, CutsAreTheRunningSumOfTheUnits) {
  const RaggedShard ragged({0, 1}, {2, 3, 0, 5});
  EXPECT_THAT(ragged.dims(), ElementsAre(0, 1));
  EXPECT_EQ(ragged.dim_count(), 2);
  EXPECT_THAT(ragged.local_units(), ElementsAre(2, 3, 0, 5));
  EXPECT_THAT(ragged.cuts(), ElementsAre(0, 2, 5, 5, 10));
  EXPECT_EQ(ragged.total_units(), 10);
  EXPECT_EQ(ragged.rank_count(), 4);
}

TEST(RaggedShard, OfOneRank_IsAllowed) { EXPECT_THAT(RaggedShard({0}, {7}).cuts(), ElementsAre(0, 7)); }

TEST(RaggedShard, Case34_DimsEmpty_Raises) {
  EXPECT_EQ(error_of([] { RaggedShard({}, {1}); }),
            "InvalidArgument: RaggedShard dims is () but must name at least one dim");
}

TEST(RaggedShard, DimsNotAPrefix_Raises) {
  const auto error = [](const std::vector<int64_t>& dims) { return error_of([&] { RaggedShard(dims, {1, 1}); }); };
  EXPECT_EQ(error({1}), "InvalidArgument: RaggedShard dims is (1,) but must be the leading dims (0, 1, ..) in order");
  EXPECT_EQ(error({0, 2}),
            "InvalidArgument: RaggedShard dims is (0, 2) but must be the leading dims (0, 1, ..) in order");
  EXPECT_EQ(error({1, 0}),
            "InvalidArgument: RaggedShard dims is (1, 0) but must be the leading dims (0, 1, ..) in order");
  EXPECT_EQ(error({0, 0}),
            "InvalidArgument: RaggedShard dims is (0, 0) but must be the leading dims (0, 1, ..) in order");
  EXPECT_EQ(error({-1}), "InvalidArgument: RaggedShard dims is (-1,) but must be the leading dims (0, 1, ..) in order");
}

TEST(RaggedShard, UnitsEmpty_Raises) {
  EXPECT_EQ(error_of([] { RaggedShard({0}, {}); }),
            "InvalidArgument: RaggedShard local_units is () but must have an entry for each rank");
}

TEST(RaggedShard, UnitNegative_Raises) {
  EXPECT_EQ(error_of([] { RaggedShard({0}, {3, -1, 2}); }),
            "InvalidArgument: RaggedShard local_units[1] is -1 but units must not be negative");
}

TEST(RaggedShard, UnitsAllZero_Raises) {
  EXPECT_EQ(error_of([] { RaggedShard({0}, {0, 0}); }),
            "InvalidArgument: RaggedShard local_units is (0, 0) but at least one unit must be positive");
  EXPECT_EQ(error_of([] { RaggedShard({0}, std::vector<int64_t>(1000, 0)); }),
            "InvalidArgument: RaggedShard local_units is 1000 zeros but at least one unit must be positive");
}

TEST(RaggedShard, UnitsBeyondInt64_Raise) {
  EXPECT_EQ(error_of([] { RaggedShard({0}, {INT64_MAX, 1}); }),
            "InvalidArgument: 9223372036854775807 + 1 does not fit in int64");
  EXPECT_EQ(RaggedShard({0}, {INT64_MAX - 1, 1}).total_units(), INT64_MAX);
}

TEST(Placement, EqualityAndHash_CoverKindAndEveryField) {
  const auto placements = unlike_placements();
  const auto again = unlike_placements();
  for (size_t i = 0; i < placements.size(); ++i) {
    for (size_t j = 0; j < placements.size(); ++j) {
      EXPECT_EQ(placements[i] == again[j], i == j) << to_string(placements[i]) << " and " << to_string(again[j]);
      EXPECT_EQ(hash_value(placements[i]) == hash_value(again[j]), i == j)
          << to_string(placements[i]) << " and " << to_string(again[j]);
    }
  }
}

TEST(Placement, Kind_IsOneOfFour) {
  for (const Placement& placement : unlike_placements()) {
    EXPECT_EQ(is_replicate(placement) + is_shard(placement) + is_partial(placement) + is_ragged_shard(placement), 1);
  }
  EXPECT_TRUE(is_replicate(Replicate{}));
  EXPECT_TRUE(is_shard(Shard(0)));
  EXPECT_TRUE(is_partial(Partial{}));
  EXPECT_TRUE(is_ragged_shard(RaggedShard({0}, {1})));
}

TEST(Placement, Text_IsTheCallThatMakesIt) {
  EXPECT_EQ(to_string(Placement(Replicate{})), "Replicate()");
  EXPECT_EQ(to_string(Placement(Shard(-2))), "Shard(-2)");
  EXPECT_EQ(to_string(Placement(Partial(ReduceOp::kMax))), "Partial(max)");
  EXPECT_EQ(to_string(Placement(RaggedShard({0, 1}, {1, 2}))), "RaggedShard((0, 1), (1, 2))");
  EXPECT_EQ(to_string(Placement(RaggedShard({0}, {7}))), "RaggedShard((0,), (7,))");
  EXPECT_EQ(to_string(std::vector<Placement>{Shard(0), Replicate{}}), "[Shard(0), Replicate()]");
  EXPECT_EQ(to_string(std::vector<Placement>{}), "[]");
}

TEST(Placement, Text_RoundTrips) {
  for (const Placement& placement : unlike_placements()) {
    EXPECT_EQ(parse_placement(to_string(placement)), placement) << to_string(placement);
  }
  EXPECT_EQ(parse_placements(to_string(unlike_placements())), unlike_placements());
  EXPECT_EQ(parse_placements("[]"), std::vector<Placement>{});
  const Placement large = RaggedShard({0}, std::vector<int64_t>(1000, 3));
  EXPECT_EQ(parse_placement(to_string(large)), large);
}

TEST(Placement, ShortText_CountsManyUnits) {
  const RaggedShard at_limit({0}, std::vector<int64_t>(kShortTextUnits, 1));
  const RaggedShard beyond({0}, std::vector<int64_t>(kShortTextUnits + 1, 1));
  EXPECT_EQ(short_text(Placement(at_limit)), to_string(Placement(at_limit)));
  EXPECT_EQ(short_text(Placement(beyond)), "RaggedShard((0,), <17 units>)");
  EXPECT_EQ(short_text(std::vector<Placement>{Replicate{}, beyond}), "[Replicate(), RaggedShard((0,), <17 units>)]");
}

TEST(Placement, Parse_TakesThePythonForm) {
  EXPECT_EQ(parse_placement("RaggedShard(dims=(0, 1), local_units=(1, 2))"), Placement(RaggedShard({0, 1}, {1, 2})));
  EXPECT_EQ(parse_placement("Shard(dim=1)"), Placement(Shard(1)));
}

TEST(Placement, Parse_TakesTheShortForms) {
  EXPECT_EQ(parse_placement("R"), Placement(Replicate{}));
  EXPECT_EQ(parse_placement(" S ( -1 ) "), Placement(Shard(-1)));
  EXPECT_EQ(parse_placement("P"), Placement(Partial{}));
  EXPECT_EQ(parse_placement("Partial()"), Placement(Partial{}));
  EXPECT_EQ(parse_placement("P(max)"), Placement(Partial(ReduceOp::kMax)));
  EXPECT_EQ(parse_placements("S(0), R"), (std::vector<Placement>{Shard(0), Replicate{}}));
  EXPECT_EQ(parse_placements("[S(0),P(avg)]"), (std::vector<Placement>{Shard(0), Partial(ReduceOp::kAvg)}));
}

TEST(Placement, Parse_RepeatsUnits) {
  EXPECT_EQ(parse_placement("RaggedShard((0,), (1*3, 0, 2*2))"), Placement(RaggedShard({0}, {1, 1, 1, 0, 2, 2})));
  EXPECT_EQ(parse_placement("RaggedShard((0,), (4*0, 5))"), Placement(RaggedShard({0}, {5})));
}

TEST(Placement, Parse_TooManyUnits_RaisesBeforeAllocating) {
  EXPECT_EQ(
      error_of([] { parse_placement("RaggedShard((0,), (1*9000000000))"); }),
      "InvalidArgument: RaggedShard local_units repeats 1 9000000000 times but at most 16777216 units can be read");
  EXPECT_EQ(error_of([] { parse_placement("RaggedShard((0,), (1*16777216, 1))"); }),
            "InvalidArgument: RaggedShard local_units repeats 1 1 times but at most 16777216 units can be read");
  EXPECT_EQ(error_of([] { parse_placement("RaggedShard((0,), (1*-1))"); }),
            "InvalidArgument: RaggedShard local_units repeats 1 -1 times but a count must not be negative");
}

TEST(Placement, Parse_Malformed_SaysWhere) {
  const auto error = [](std::string_view text) { return error_of([&] { parse_placement(text); }); };
  const std::string kinds =
      " is not a placement; placements are Replicate(), Shard(dim), Partial(op) and RaggedShard(dims, local_units)";
  EXPECT_EQ(error(""), "InvalidArgument: cannot read '': expected a name at position 0");
  EXPECT_EQ(error("Split(0)"), "InvalidArgument: 'Split'" + kinds);
  EXPECT_EQ(error("shard(0)"), "InvalidArgument: 'shard'" + kinds);
  EXPECT_EQ(error("Shard"), "InvalidArgument: cannot read 'Shard': expected '(' at position 5");
  EXPECT_EQ(error("Shard()"), "InvalidArgument: cannot read 'Shard()': expected an int64 at position 6");
  EXPECT_EQ(error("Shard(1.5)"), "InvalidArgument: cannot read 'Shard(1.5)': expected ')' at position 7");
  EXPECT_EQ(error("Shard(9223372036854775808)"),
            "InvalidArgument: cannot read 'Shard(9223372036854775808)': expected an int64 at position 6");
  EXPECT_EQ(error("Replicate(0)"), "InvalidArgument: cannot read 'Replicate(0)': expected ')' at position 10");
  EXPECT_EQ(error("Partial(prod)"), "InvalidArgument: Partial op is 'prod' but must be one of sum, avg, max, min");
  EXPECT_EQ(error("Partial(sum"), "InvalidArgument: cannot read 'Partial(sum': expected ')' at position 11");
  EXPECT_EQ(error("Shard(0) Shard(1)"),
            "InvalidArgument: cannot read 'Shard(0) Shard(1)': expected the end at position 9");
  EXPECT_EQ(error("RaggedShard(0, (1, 2))"),
            "InvalidArgument: cannot read 'RaggedShard(0, (1, 2))': expected '(' at position 12");
  EXPECT_EQ(error("RaggedShard((0,))"),
            "InvalidArgument: cannot read 'RaggedShard((0,))': expected ',' at position 16");
  EXPECT_EQ(error("RaggedShard((0,), (1 2))"),
            "InvalidArgument: cannot read 'RaggedShard((0,), (1 2))': expected ')' at position 21");
  EXPECT_EQ(error("RaggedShard((0,), <17 units>)"),
            "InvalidArgument: cannot read 'RaggedShard((0,), <17 units>)': expected '(' at position 18");
}

TEST(Placement, Parse_RaggedValueThatIsNone_RaisesAsTheConstructor) {
  EXPECT_EQ(error_of([] { parse_placement("RaggedShard((1,), (1, 2))"); }),
            "InvalidArgument: RaggedShard dims is (1,) but must be the leading dims (0, 1, ..) in order");
  EXPECT_EQ(error_of([] { parse_placement("RaggedShard((0,), ())"); }),
            "InvalidArgument: RaggedShard local_units is () but must have an entry for each rank");
}

TEST(Placement, ParseList_Malformed_SaysWhere) {
  const auto error = [](std::string_view text) { return error_of([&] { parse_placements(text); }); };
  EXPECT_EQ(error("[R"), "InvalidArgument: cannot read '[R': expected ',' at position 2");
  EXPECT_EQ(error("[R]]"), "InvalidArgument: cannot read '[R]]': expected the end at position 3");
  EXPECT_EQ(error("R R"), "InvalidArgument: cannot read 'R R': expected ',' at position 2");
  EXPECT_EQ(error("[,]"), "InvalidArgument: cannot read '[,]': expected a name at position 1");
}

TEST(RaggedShard, Of100000Ranks_CopiesShareTheUnits) {
  std::vector<int64_t> units(100'000);
  std::iota(units.begin(), units.end(), 0);
  const RaggedShard ragged({0}, units);
  const Placement copy = ragged;
  EXPECT_EQ(&std::get<RaggedShard>(copy).local_units(), &ragged.local_units());
  EXPECT_EQ(ragged.total_units(), int64_t{100'000} * 99'999 / 2);
  EXPECT_EQ(copy, Placement(RaggedShard({0}, units)));
}

}  // namespace
}  // namespace hyper_parallel
