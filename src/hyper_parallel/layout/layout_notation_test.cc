#include "hyper_parallel/layout/layout_notation.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

DeviceMesh dp_tp() { return DeviceMesh({2, 2}, {"dp", "tp"}); }
DeviceMesh pp_dp_tp() { return DeviceMesh({2, 3, 4}, {"pp", "dp", "tp"}); }

std::string map_error(const std::vector<TensorMapEntry>& map) {
  return error_of([&] { layout_from_tensor_map(dp_tp(), map); });
}

std::string alias_error(const std::vector<AliasEntry>& aliases) {
  return error_of([&] { layout_from_aliases(dp_tp(), aliases); });
}

using Axes = std::vector<int64_t>;
using Names = std::vector<std::string>;

TEST(LayoutNotation, TensorMap_WorkedExampleOfTheSpecification) {
  EXPECT_EQ(layout_from_tensor_map(dp_tp(), {1, 0, -1}), Layout(dp_tp(), {Shard(0), Shard(1)}));
}

TEST(LayoutNotation, TensorMap_SeveralAxesOneAxisAndNone) {
  EXPECT_EQ(layout_from_tensor_map(pp_dp_tp(), {-1, Axes{2, 0}}),
            Layout(pp_dp_tp(), {Shard(1), Replicate{}, Shard(1)}));
  EXPECT_EQ(layout_from_tensor_map(dp_tp(), {Axes{1}, Axes{}}), Layout(dp_tp(), {Shard(0), Replicate{}}));
  EXPECT_EQ(layout_from_tensor_map(dp_tp(), {}), Layout(dp_tp(), {Replicate{}, Replicate{}}));
}

TEST(LayoutNotation, TensorMap_AxisOutsideTheMeshOrTwice_Raises) {
  EXPECT_EQ(map_error({2}), "InvalidArgument: tensor_map (2,) names axis 2 but the mesh has 2 dims");
  EXPECT_EQ(map_error({-2}), "InvalidArgument: tensor_map (-2,) names axis -2 but the mesh has 2 dims");
  EXPECT_EQ(map_error({Axes{0, -1}}), "InvalidArgument: tensor_map ((0, -1),) names axis -1 but the mesh has 2 dims");
  EXPECT_EQ(map_error({1, 1}), "InvalidArgument: tensor_map (1, 1) uses axis 1 which already is Shard(0)");
}

TEST(LayoutNotation, TensorMap_InnerAxisFirst_Raises) {
  EXPECT_EQ(map_error({Axes{0, 1}}),
            "Unimplemented: tensor_map ((0, 1),) splits a tensor dim by an inner mesh axis first, which placements "
            "cannot say");
}

TEST(LayoutNotation, Aliases_NameTheMeshDimOfEachTensorDim) {
  EXPECT_EQ(layout_from_aliases(dp_tp(), {"dp", "tp", "None"}), Layout(dp_tp(), {Shard(0), Shard(1)}));
  EXPECT_EQ(layout_from_aliases(dp_tp(), {"None", "tp"}), Layout(dp_tp(), {Replicate{}, Shard(1)}));
  EXPECT_EQ(layout_from_aliases(dp_tp(), {Names{"dp", "tp"}, "None"}), Layout(dp_tp(), {Shard(0), Shard(0)}));
  EXPECT_EQ(layout_from_aliases(dp_tp(), {"None", Names{}, Names{"tp"}}), Layout(dp_tp(), {Replicate{}, Shard(2)}));
  EXPECT_EQ(layout_from_aliases(dp_tp(), {}), Layout(dp_tp(), {Replicate{}, Replicate{}}));
}

TEST(LayoutNotation, Aliases_UnknownName_Raises) {
  EXPECT_EQ(alias_error({"dp", "ep"}),
            "InvalidArgument: layout aliases ('dp', 'ep') name 'ep', which is not a dim of the mesh; its dims are "
            "(dp, tp)");
  EXPECT_EQ(alias_error({Names{"dp", "None"}}),
            "InvalidArgument: layout aliases (('dp', 'None'),) name 'None', which is not a dim of the mesh; its dims "
            "are (dp, tp)");
}

TEST(LayoutNotation, Aliases_NameTwice_Raises) {
  EXPECT_EQ(alias_error({"dp", "dp"}), "InvalidArgument: layout aliases ('dp', 'dp') name mesh dim 'dp' twice");
}

TEST(LayoutNotation, Aliases_InnerMeshDimFirst_Raises) {
  EXPECT_EQ(alias_error({"None", Names{"tp", "dp"}}),
            "Unimplemented: layout aliases ('None', ('tp', 'dp')) split tensor dim 1 by the inner mesh dim 'tp' first, "
            "which placements cannot say");
}

}  // namespace
}  // namespace hyper_parallel
