#include "hyper_parallel/layout/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hyper_parallel/base/dims.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

DeviceMesh dp_tp() { return DeviceMesh({2, 2}, {"dp", "tp"}); }
DeviceMesh dp(int64_t size) { return DeviceMesh({size}, {"dp"}); }

Layout ragged_on_dp() { return Layout(dp_tp(), {RaggedShard({0, 1}, {1, 2}), Replicate{}}); }

std::string layout_error(const DeviceMesh& mesh, const std::vector<Placement>& placements) {
  return error_of([&] { Layout(mesh, placements); });
}

std::string shape_error(const Layout& layout, const Dims& shape) {
  return error_of([&] { check_shape(layout, shape); });
}

TEST(Layout, RaggedLayout_HasThreeViews) {
  const Layout layout(dp_tp(), {Replicate{}, RaggedShard({0}, {3, 1})});
  EXPECT_EQ(layout.placements(), (std::vector<Placement>{Replicate{}, RaggedShard({0}, {3, 1})}));
  EXPECT_EQ(layout.ragged_shard(), (RaggedShardInfo{1, RaggedShard({0}, {3, 1})}));
  EXPECT_EQ(layout.normal_placements(), (std::vector<Placement>{Replicate{}, Replicate{}}));
  EXPECT_TRUE(layout.is_ragged());
  EXPECT_FALSE(layout.has_partial());
}

TEST(Layout, NormalLayout_IsItsOwnNormalView) {
  const Layout layout(dp_tp(), {Shard(0), Partial(ReduceOp::kMax)});
  EXPECT_EQ(layout.normal_placements(), layout.placements());
  EXPECT_EQ(layout.ragged_shard(), std::nullopt);
  EXPECT_FALSE(layout.is_ragged());
  EXPECT_TRUE(layout.has_partial());
}

TEST(Layout, WithPlacements_LeavesTheOriginal) {
  const Layout layout(dp_tp(), {Partial{}, Replicate{}});
  const Layout other = layout.with_placements({Replicate{}, Shard(0)});
  EXPECT_EQ(layout.placements(), (std::vector<Placement>{Partial{}, Replicate{}}));
  EXPECT_EQ(other, Layout(dp_tp(), {Replicate{}, Shard(0)}));
}

TEST(Layout, PlacementCountUnlikeMeshDims_Raises) {
  EXPECT_EQ(layout_error(dp_tp(), {Shard(0)}),
            "InvalidArgument: placements [Shard(0)] are 1 but the mesh has 2 dims (dp, tp)");
  EXPECT_EQ(layout_error(dp(2), {Shard(0), Replicate{}}),
            "InvalidArgument: placements [Shard(0), Replicate()] are 2 but the mesh has 1 dims (dp,)");
  EXPECT_EQ(layout_error(dp(2), {}), "InvalidArgument: placements [] are 0 but the mesh has 1 dims (dp,)");
}

TEST(Layout, SeveralRagged_Raise) {
  EXPECT_EQ(
      layout_error(dp_tp(), {RaggedShard({0}, {1, 1}), RaggedShard({0}, {1, 2})}),
      "InvalidArgument: placements [RaggedShard((0,), (1, 1)), RaggedShard((0,), (1, 2))] hold several RaggedShard "
      "but a layout has at most one");
}

TEST(Layout, UnitsCountUnlikeMeshDimSize_Raises) {
  EXPECT_EQ(layout_error(dp(2), {RaggedShard({0}, {1, 1, 1})}),
            "InvalidArgument: RaggedShard local_units has 3 entries but mesh dim 'dp' has size 2");
  EXPECT_EQ(layout_error(DeviceMesh({4, 2}, {"dp", "tp"}), {Replicate{}, RaggedShard({0}, {1, 1, 1, 1})}),
            "InvalidArgument: RaggedShard local_units has 4 entries but mesh dim 'tp' has size 2");
}

TEST(Layout, BesideRaggedNotReplicate_Raises) {
  const RaggedShard ragged({0}, {1, 2});
  EXPECT_EQ(
      layout_error(dp_tp(), {ragged, Shard(1)}),
      "InvalidArgument: placements [RaggedShard((0,), (1, 2)), Shard(1)] have Shard(1) on mesh dim 'tp' but beside "
      "RaggedShard every other mesh dim must be Replicate()");
  EXPECT_EQ(
      layout_error(dp_tp(), {Partial{}, ragged}),
      "InvalidArgument: placements [Partial(sum), RaggedShard((0,), (1, 2))] have Partial(sum) on mesh dim 'dp' but "
      "beside RaggedShard every other mesh dim must be Replicate()");
}

TEST(Layout, EqualityAndHash_CoverMeshPlacementsDimsAndUnits) {
  EXPECT_EQ(ragged_on_dp(), ragged_on_dp());
  EXPECT_EQ(std::hash<Layout>{}(ragged_on_dp()), ragged_on_dp().hash());
  const std::vector<Layout> unlike = {
      ragged_on_dp(),
      Layout(DeviceMesh({2, 2}, {"dp", "ep"}), ragged_on_dp().placements()),
      Layout(DeviceMesh({2, 2}, {"dp", "tp"}, {0, 1, 3, 2}), ragged_on_dp().placements()),
      Layout(DeviceMesh({2, 2}, {"dp", "tp"}, {4, 5, 6, 7}), ragged_on_dp().placements()),
      Layout(DeviceMesh({2, 1}, {"dp", "tp"}), ragged_on_dp().placements()),
      Layout(dp_tp(), {RaggedShard({0, 1}, {2, 1}), Replicate{}}),
      Layout(dp_tp(), {RaggedShard({0, 1}, {2, 4}), Replicate{}}),
      Layout(dp_tp(), {RaggedShard({0}, {1, 2}), Replicate{}}),
      Layout(dp_tp(), {Replicate{}, RaggedShard({0, 1}, {1, 2})}),
      Layout(dp_tp(), {Replicate{}, Replicate{}}),
      Layout(dp_tp(), {Shard(0), Replicate{}}),
      Layout(dp_tp(), {Replicate{}, Shard(0)}),
      Layout(dp_tp(), {Shard(0), Shard(1)}),
      Layout(dp_tp(), {Shard(1), Shard(0)}),
      Layout(dp_tp(), {Partial{}, Replicate{}}),
      Layout(dp_tp(), {Partial(ReduceOp::kAvg), Replicate{}}),
  };
  for (size_t i = 0; i < unlike.size(); ++i) {
    for (size_t j = 0; j < unlike.size(); ++j) {
      EXPECT_EQ(unlike[i] == unlike[j], i == j) << to_string(unlike[i]) << " and " << to_string(unlike[j]);
      EXPECT_EQ(unlike[i].hash() == unlike[j].hash(), i == j)
          << to_string(unlike[i]) << " and " << to_string(unlike[j]);
    }
  }
}

TEST(Layout, Folded_CountsNegativeDimsFromTheEnd) {
  const Layout layout(dp_tp(), {Shard(-1), Shard(-3)});
  EXPECT_EQ(layout.folded(3), Layout(dp_tp(), {Shard(2), Shard(0)}));
  EXPECT_EQ(layout.folded(4), Layout(dp_tp(), {Shard(3), Shard(1)}));
  EXPECT_EQ(layout.folded(3).folded(3), layout.folded(3));
  EXPECT_EQ(layout.placements(), (std::vector<Placement>{Shard(-1), Shard(-3)})) << "the original stays unfolded";
}

TEST(Layout, Folded_LeavesOtherPlacements) {
  for (const Layout& layout : {ragged_on_dp(), Layout(dp_tp(), {Partial{}, Shard(1)})})
    EXPECT_EQ(layout.folded(2), layout);
  EXPECT_EQ(Layout(dp(2), {Replicate{}}).folded(0), Layout(dp(2), {Replicate{}}));
}

TEST(Layout, Folded_ShardDimOutOfRange_Raises) {
  const auto error = [](int64_t dim, int64_t ndim) {
    return error_of([&] { Layout(dp(2), {Shard(dim)}).folded(ndim); });
  };
  EXPECT_EQ(error(2, 2), "OutOfRange: Shard(2) is out of range for a tensor of 2 dims");
  EXPECT_EQ(error(-3, 2), "OutOfRange: Shard(-3) is out of range for a tensor of 2 dims");
  EXPECT_EQ(error(INT64_MAX, 2), "OutOfRange: Shard(9223372036854775807) is out of range for a tensor of 2 dims");
  EXPECT_EQ(error(INT64_MIN, 2), "OutOfRange: Shard(-9223372036854775808) is out of range for a tensor of 2 dims");
}

TEST(Layout, Folded_NegativeNdim_Raises) {
  EXPECT_EQ(error_of([] { Layout(dp(2), {Replicate{}}).folded(-1); }),
            "InvalidArgument: the tensor's ndim is -1 but must not be negative");
}

TEST(Layout, Case34_ShardOfAZeroDimTensor_Raises) {
  EXPECT_EQ(shape_error(Layout(dp(2), {Shard(0)}), {}), "OutOfRange: Shard(0) is out of range for a tensor of 0 dims");
  EXPECT_EQ(shape_error(Layout(dp(2), {Shard(-1)}), {}),
            "OutOfRange: Shard(-1) is out of range for a tensor of 0 dims");
  EXPECT_EQ(shape_error(Layout(dp(2), {Replicate{}}), {}), "no error");
}

TEST(Layout, Case34_RaggedDimsLongerThanTheTensor_Raise) {
  EXPECT_EQ(shape_error(Layout(dp(2), {RaggedShard({0}, {1, 1})}), {}),
            "InvalidArgument: RaggedShard dims (0,) are more than the tensor's 0 dims");
  EXPECT_EQ(shape_error(ragged_on_dp(), {6}),
            "InvalidArgument: RaggedShard dims (0, 1) are more than the tensor's 1 dims");
}

TEST(Layout, Case34_RaggedOnZeroSizeShapes_Fits) {
  EXPECT_EQ(shape_error(Layout(dp(2), {RaggedShard({0}, {1, 2})}), {0}), "no error");
  EXPECT_EQ(shape_error(Layout(dp(2), {RaggedShard({0, 1}, {1, 2})}), {2, 0, 3}), "no error");
}

TEST(CheckShape, PrefixCellsNotDivisible_Raises) {
  EXPECT_EQ(shape_error(ragged_on_dp(), {6, 4, 8}), "no error");
  EXPECT_EQ(
      shape_error(ragged_on_dp(), {5, 4, 8}),
      "InvalidArgument: RaggedShard local_units sum to 3 but dims (0, 1) of shape (5, 4, 8) have 20 cells, which must "
      "be a multiple of it");
}

TEST(CheckShape, PrefixCellsNotDivisible_RaisesAlsoWhereTheSuffixIsEmpty) {
  EXPECT_EQ(
      shape_error(Layout(dp(2), {RaggedShard({0}, {1, 1})}), {3, 0}),
      "InvalidArgument: RaggedShard local_units sum to 2 but dims (0,) of shape (3, 0) have 3 cells, which must be a "
      "multiple of it");
}

TEST(CheckShape, FewerCellsThanUnits_Raises) {
  EXPECT_EQ(
      shape_error(Layout(dp(2), {RaggedShard({0}, {4, 4})}), {4}),
      "InvalidArgument: RaggedShard local_units sum to 8 but dims (0,) of shape (4,) have 4 cells, which must be a "
      "multiple of it");
}

TEST(CheckShape, ShardDimOutOfRange_Raises) {
  EXPECT_EQ(shape_error(Layout(dp(2), {Shard(2)}), {4, 4}),
            "OutOfRange: Shard(2) is out of range for a tensor of 2 dims");
}

TEST(CheckShape, NegativeSize_Raises) {
  const std::string message = "InvalidArgument: global shape (4, -1) has the negative size -1";
  EXPECT_EQ(shape_error(Layout(dp(2), {Replicate{}}), {4, -1}), message);
  EXPECT_EQ(shape_error(Layout(dp(2), {RaggedShard({0}, {1, 1})}), {4, -1}), message);
  EXPECT_EQ(error_of([] { check_global_shape(Dims{4, -1}); }), message);
}

TEST(CheckShape, MoreElementsThanInt64_Raises) {
  EXPECT_EQ(
      shape_error(Layout(dp(2), {Replicate{}}), {int64_t{1} << 62, 4}),
      "InvalidArgument: global shape (4611686018427387904, 4) has a number of elements that does not fit in int64");
}

TEST(CheckShape, HugeDimsWithoutElements_Fit) {
  const int64_t huge = int64_t{1} << 62;
  EXPECT_EQ(shape_error(Layout(dp(2), {Shard(0)}), {huge, 4, 0}), "no error");
  EXPECT_EQ(shape_error(Layout(dp(2), {RaggedShard({0}, {1, 1})}), {huge, 4, 0}), "no error");
  EXPECT_EQ(shape_error(Layout(dp(2), {RaggedShard({0}, {1, 1})}), {0, huge, 4}), "no error");
}

TEST(CheckShape, UnevenAndEmptyShards_Fit) {
  EXPECT_EQ(shape_error(Layout(dp(4), {Shard(0)}), {5, 3}), "no error");
  EXPECT_EQ(shape_error(Layout(dp_tp(), {Shard(0), Shard(-2)}), {1, 3}), "no error");
}

TEST(Layout, Text_RoundTrips) {
  EXPECT_EQ(to_string(Layout(dp(2), {Shard(0)})), "Layout(DeviceMesh((2,), ('dp',)), [Shard(0)])");
  for (const Layout& layout :
       {ragged_on_dp(), Layout(dp(2), {Partial(ReduceOp::kMin)}), Layout(dp_tp(), {Shard(-1), Replicate{}}),
        Layout(DeviceMesh({2, 2}, {"dp", "tp"}, {5, 3, 9, 0}), {RaggedShard({0}, {0, 4}), Replicate{}})}) {
    EXPECT_EQ(parse_layout(to_string(layout)), layout) << to_string(layout);
  }
}

TEST(Layout, Parse_Malformed_SaysWhatWasExpected) {
  const auto error = [](std::string_view text) { return error_of([&] { parse_layout(text); }); };
  for (const std::string text :
       {"", "Layout(", "Layout()", "Layout(DeviceMesh((2,), ('dp',)))", "Layout(DeviceMesh((2,), ('dp',)), [Shard(0)]",
        "DeviceMesh((2,), ('dp',)), [Shard(0)])", "Layout(), ["}) {
    EXPECT_EQ(error(text),
              "InvalidArgument: cannot read '" + text + "': expected Layout(DeviceMesh(..), [placements])");
  }
  EXPECT_EQ(error("Layout(), [)"), "InvalidArgument: cannot read ')': expected 'DeviceMesh' at position 0");
  EXPECT_EQ(error("Layout(DeviceMesh((2,), ('dp',)), [Shard(x)])"),
            "InvalidArgument: cannot read '[Shard(x)]': expected an int64 at position 7");
  EXPECT_EQ(error("Layout(DeviceMesh((2,), ('dp',)), [])"),
            "InvalidArgument: placements [] are 0 but the mesh has 1 dims (dp,)");
}

TEST(Layout, Of100000Ranks_BuildsAndComparesFast) {
  const DeviceMesh mesh({100'000}, {"dp"});
  std::vector<int64_t> units(100'000, 1);
  units.back() = 2;
  const Layout layout(mesh, {RaggedShard({0}, units)});
  EXPECT_EQ(layout, Layout(mesh, {RaggedShard({0}, units)}));
  units.front() = 2;
  EXPECT_NE(layout, Layout(mesh, {RaggedShard({0}, units)}));
  EXPECT_EQ(shape_error(layout, {100'001}), "no error");
}

}  // namespace
}  // namespace hyper_parallel
