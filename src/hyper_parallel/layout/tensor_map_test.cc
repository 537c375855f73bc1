#include "hyper_parallel/layout/tensor_map.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

DeviceMesh dp_tp() { return DeviceMesh({2, 2}, {"dp", "tp"}); }
DeviceMesh pp_dp_tp() { return DeviceMesh({2, 3, 4}, {"pp", "dp", "tp"}); }

std::string map_text(const Layout& layout, int64_t ndim) { return to_string(placement_to_tensor_map(layout, ndim)); }

/// The map with these entries and nothing pending or ragged.
TensorMap entries_only(std::vector<std::vector<int64_t>> entries) { return {std::move(entries), {}, std::nullopt}; }

std::string back_error(const DeviceMesh& mesh, const TensorMap& map) {
  return error_of([&] { tensor_map_to_placement(mesh, map); });
}

TEST(TensorMap, WorkedExampleOfTheSpecification) {
  EXPECT_EQ(map_text(Layout(dp_tp(), {Shard(0), Shard(1)}), 3), "(1, 0, -1)");
}

TEST(TensorMap, Entry_NamesTheAxisCountedFromTheInnermostMeshDim) {
  EXPECT_EQ(map_text(Layout(pp_dp_tp(), {Shard(0), Replicate{}, Shard(1)}), 2), "(2, 0)");
  EXPECT_EQ(map_text(Layout(pp_dp_tp(), {Replicate{}, Shard(1), Replicate{}}), 3), "(-1, 1, -1)");
  EXPECT_EQ(map_text(Layout(dp_tp(), {Replicate{}, Replicate{}}), 0), "()");
}

TEST(TensorMap, SeveralAxesOnOneTensorDim_AreATupleOutermostFirst) {
  EXPECT_EQ(map_text(Layout(dp_tp(), {Shard(0), Shard(0)}), 2), "((1, 0), -1)");
  EXPECT_EQ(map_text(Layout(pp_dp_tp(), {Shard(1), Shard(0), Shard(1)}), 2), "(1, (2, 0))");
}

TEST(TensorMap, NegativeShardDim_IsFolded) {
  EXPECT_EQ(map_text(Layout(dp_tp(), {Shard(-1), Replicate{}}), 3), "(-1, -1, 1)");
}

TEST(TensorMap, PartialAndRagged_NeverShowAsShards) {
  const TensorMap partial = placement_to_tensor_map(Layout(dp_tp(), {Partial(ReduceOp::kAvg), Shard(0)}), 2);
  EXPECT_EQ(to_string(partial), "(0, -1)");
  EXPECT_EQ(partial.partial, (std::vector<std::optional<ReduceOp>>{ReduceOp::kAvg, std::nullopt}));
  const TensorMap ragged = placement_to_tensor_map(Layout(dp_tp(), {Replicate{}, RaggedShard({0}, {1, 3})}), 2);
  EXPECT_EQ(to_string(ragged), "(-1, -1)");
  EXPECT_EQ(ragged.ragged, (RaggedShardInfo{1, RaggedShard({0}, {1, 3})}));
}

TEST(TensorMap, ThereAndBack_LosesNothing) {
  std::vector<Placement> choices = {Replicate{}, Shard(0), Shard(1), Shard(2)};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin})
    choices.emplace_back(Partial(op));
  for (const Placement& first : choices) {
    for (const Placement& second : choices) {
      for (const Placement& third : choices) {
        const Layout layout(pp_dp_tp(), {first, second, third});
        EXPECT_EQ(tensor_map_to_placement(pp_dp_tp(), placement_to_tensor_map(layout, 3)), layout) << to_string(layout);
      }
    }
  }
  const Replicate all;
  for (const Layout& layout : {Layout(pp_dp_tp(), {RaggedShard({0, 1}, {1, 2}), all, all}),
                               Layout(pp_dp_tp(), {all, RaggedShard({0}, {0, 5, 1}), all}),
                               Layout(pp_dp_tp(), {all, all, RaggedShard({0, 1, 2}, {1, 0, 0, 2})})}) {
    EXPECT_EQ(tensor_map_to_placement(pp_dp_tp(), placement_to_tensor_map(layout, 3)), layout) << to_string(layout);
  }
}

TEST(TensorMap, WithoutPartialEntries_HasNothingPending) {
  EXPECT_EQ(tensor_map_to_placement(dp_tp(), entries_only({{1}, {0}, {}})), Layout(dp_tp(), {Shard(0), Shard(1)}));
  EXPECT_EQ(tensor_map_to_placement(dp_tp(), entries_only({})), Layout(dp_tp(), {Replicate{}, Replicate{}}));
}

TEST(TensorMap, ToMap_DimsThatDoNotFit_Raise) {
  EXPECT_EQ(error_of([] { placement_to_tensor_map(Layout(dp_tp(), {Shard(2), Replicate{}}), 2); }),
            "OutOfRange: Shard(2) is out of range for a tensor of 2 dims");
  EXPECT_EQ(error_of([] { placement_to_tensor_map(Layout(dp_tp(), {RaggedShard({0, 1}, {1, 1}), Replicate{}}), 1); }),
            "InvalidArgument: RaggedShard dims (0, 1) are more than the tensor's 1 dims");
  EXPECT_EQ(error_of([] { placement_to_tensor_map(Layout(dp_tp(), {Replicate{}, Replicate{}}), -1); }),
            "InvalidArgument: the tensor's ndim is -1 but must not be negative");
}

TEST(TensorMap, Back_AxisOutsideTheMesh_Raises) {
  EXPECT_EQ(back_error(dp_tp(), entries_only({{2}, {}})),
            "InvalidArgument: tensor_map (2, -1) names axis 2 but the mesh has 2 dims");
  EXPECT_EQ(back_error(dp_tp(), entries_only({{-2}})),
            "InvalidArgument: tensor_map (-2,) names axis -2 but the mesh has 2 dims");
}

TEST(TensorMap, Back_AxisThatStandsTwice_Raises) {
  EXPECT_EQ(back_error(dp_tp(), entries_only({{1}, {1}})),
            "InvalidArgument: tensor_map (1, 1) uses axis 1 which already is Shard(0)");
  EXPECT_EQ(back_error(dp_tp(), entries_only({{1, 1}})),
            "InvalidArgument: tensor_map ((1, 1),) uses axis 1 which already is Shard(0)");
}

TEST(TensorMap, Back_AxisThatIsAlsoPartialOrRagged_Raises) {
  EXPECT_EQ(back_error(dp_tp(), {{{1}}, {ReduceOp::kSum, std::nullopt}, std::nullopt}),
            "InvalidArgument: tensor_map (1,) uses axis 1 which already is Partial(sum)");
  EXPECT_EQ(back_error(dp_tp(), {{{0}}, {}, RaggedShardInfo{1, RaggedShard({0}, {1, 2})}}),
            "InvalidArgument: tensor_map (0,) uses axis 0 which already is RaggedShard((0,), (1, 2))");
  EXPECT_EQ(back_error(dp_tp(), {{{}}, {ReduceOp::kMax, std::nullopt}, RaggedShardInfo{0, RaggedShard({0}, {1, 2})}}),
            "InvalidArgument: tensor_map is ragged on mesh dim 0 which already is Partial(max)");
}

TEST(TensorMap, Back_InnerAxisFirst_IsUnimplemented) {
  EXPECT_EQ(back_error(dp_tp(), entries_only({{0, 1}, {}})),
            "Unimplemented: tensor_map ((0, 1), -1) splits a tensor dim by an inner mesh axis first, which placements "
            "cannot say");
}

TEST(TensorMap, Back_PartialOrRaggedOfAnotherMesh_Raises) {
  EXPECT_EQ(back_error(dp_tp(), {{{}}, {ReduceOp::kSum}, std::nullopt}),
            "InvalidArgument: tensor_map has 1 partial entries but the mesh has 2 dims");
  EXPECT_EQ(back_error(dp_tp(), {{{}}, {}, RaggedShardInfo{2, RaggedShard({0}, {1, 2})}}),
            "InvalidArgument: tensor_map is ragged on mesh dim 2 but the mesh has 2 dims");
  EXPECT_EQ(back_error(dp_tp(), {{{}}, {}, RaggedShardInfo{-1, RaggedShard({0}, {1, 2})}}),
            "InvalidArgument: tensor_map is ragged on mesh dim -1 but the mesh has 2 dims");
  EXPECT_EQ(back_error(dp_tp(), {{{}}, {}, RaggedShardInfo{0, RaggedShard({0}, {1, 2, 3})}}),
            "InvalidArgument: RaggedShard local_units has 3 entries but mesh dim 'dp' has size 2");
  EXPECT_EQ(back_error(dp_tp(), {{{}}, {}, RaggedShardInfo{0, RaggedShard({0, 1}, {1, 2})}}),
            "InvalidArgument: RaggedShard dims (0, 1) are more than the tensor's 1 dims");
}

}  // namespace
}  // namespace hyper_parallel
