// The reference itself, against values worked out by hand: what it says of a layout decides every property.

#include <gmock/gmock.h>

#include <stdexcept>

#include "tests/property/property.h"
#include "tests/reference/from_layout.h"

namespace hyper_parallel::test {
namespace {

using reference::distribute;
using reference::owned_elements;
using reference::owner_offset;
using reference::reduce;
using reference::Scheme;
using reference::scheme_of;
using testing::ElementsAre;
using testing::IsEmpty;

int64_t lowest(int64_t low, int64_t) { return low; }

TEST(Truth, FiveRowsOverFourRanks_AreTwoTwoOneNone) {
  const Scheme scheme = scheme_of(Layout(DeviceMesh({4}), {Shard(0)}), {5});
  EXPECT_THAT(owned_elements(scheme, 0), ElementsAre(0, 1));
  EXPECT_THAT(owned_elements(scheme, 1), ElementsAre(2, 3));
  EXPECT_THAT(owned_elements(scheme, 2), ElementsAre(4));
  EXPECT_THAT(owned_elements(scheme, 3), IsEmpty());
}

TEST(Truth, NestedShardsOfFiveRows_AreTwoOneOneOne) {
  const Scheme scheme = scheme_of(Layout(DeviceMesh({2, 2}), {Shard(0), Shard(-1)}), {5});
  EXPECT_THAT(owned_elements(scheme, 0), ElementsAre(0, 1));
  EXPECT_THAT(owned_elements(scheme, 1), ElementsAre(2));
  EXPECT_THAT(owned_elements(scheme, 2), ElementsAre(3));
  EXPECT_THAT(owned_elements(scheme, 3), ElementsAre(4));
}

TEST(Truth, ShardOfColumns_KeepsRowMajorOrder) {
  const Scheme scheme = scheme_of(Layout(DeviceMesh({2}), {Shard(1)}), {2, 3});
  EXPECT_THAT(owned_elements(scheme, 0), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(owned_elements(scheme, 1), ElementsAre(2, 5));
  EXPECT_EQ(owner_offset(scheme, 3, 0), std::optional<int64_t>(2));
  EXPECT_EQ(owner_offset(scheme, 3, 1), std::nullopt);
}

TEST(Truth, RaggedOverTwoDims_CutsAfterWholeUnits) {
  const RaggedShard ragged({0, 1}, {1, 0, 2});
  const Scheme scheme = scheme_of(Layout(DeviceMesh({3}), {ragged}), {6, 4, 8});
  EXPECT_EQ(owned_elements(scheme, 0).size(), 64u);
  EXPECT_EQ(owned_elements(scheme, 0).back(), 63);
  EXPECT_THAT(owned_elements(scheme, 1), IsEmpty());
  EXPECT_EQ(owned_elements(scheme, 2).front(), 64);
  EXPECT_EQ(owned_elements(scheme, 2).size(), 128u);
}

TEST(Truth, RaggedWithUnitsOfSeveralCells_DealsEachUnitWhole) {
  const Scheme scheme = scheme_of(Layout(DeviceMesh({2}), {RaggedShard({0}, {1, 2})}), {6, 2});
  EXPECT_THAT(owned_elements(scheme, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(owned_elements(scheme, 1), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
}

TEST(Truth, MeshOrder_IsThatOfTheRankList) {
  const Scheme scheme = scheme_of(Layout(DeviceMesh({2}, {"dp"}, {7, 3}), {Shard(0)}), {4});
  EXPECT_THAT(owned_elements(scheme, 7), ElementsAre(0, 1));
  EXPECT_THAT(owned_elements(scheme, 3), ElementsAre(2, 3));
  EXPECT_THAT(owned_elements(scheme, 0), IsEmpty());
}

TEST(Truth, Reduction_TakesTheInnermostMeshDimFirst) {
  // (max(1, 5) + max(7, 2)); the other order would be max(1 + 7, 5 + 2).
  const Scheme scheme = scheme_of(Layout(DeviceMesh({2, 2}), {Partial(ReduceOp::kSum), Partial(ReduceOp::kMax)}), {1});
  EXPECT_THAT(reduce(scheme, {{0, {1}}, {1, {5}}, {2, {7}}, {3, {2}}}), ElementsAre(12));
}

TEST(Truth, SharesOfEachOp_ReduceToTheValue) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
    const Scheme scheme = scheme_of(Layout(DeviceMesh({3}), {Partial(op)}), {2});
    EXPECT_THAT(reduce(scheme, distribute(scheme, {6, -3}, lowest)), ElementsAre(6, -3)) << to_string(op);
  }
}

TEST(Truth, UnequalReplicas_AreRefused) {
  const Scheme scheme = scheme_of(Layout(DeviceMesh({2}), {Replicate{}}), {1});
  EXPECT_THAT(reduce(scheme, {{0, {4}}, {1, {4}}}), ElementsAre(4));
  EXPECT_THROW(reduce(scheme, {{0, {4}}, {1, {5}}}), std::runtime_error);
}

TEST(Truth, ShareOfTheWrongLength_IsRefused) {
  const Scheme scheme = scheme_of(Layout(DeviceMesh({2}), {Shard(0)}), {2});
  EXPECT_THROW(reduce(scheme, {{0, {4, 4}}, {1, {5}}}), std::runtime_error);
}

}  // namespace
}  // namespace hyper_parallel::test
