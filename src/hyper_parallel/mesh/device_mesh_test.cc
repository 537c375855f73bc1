#include "hyper_parallel/mesh/device_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;
using Ranks = std::vector<int64_t>;

DeviceMesh dp_tp() { return DeviceMesh({2, 2}, {"dp", "tp"}); }

/// A (2, 3) mesh over some ranks, neither sorted nor of constant stride.
DeviceMesh scattered() { return DeviceMesh({2, 3}, {"dp", "tp"}, {7, 0, 12, 3, 40, 1}); }

TEST(DeviceMesh, WithoutRankList_HoldsRanksFromZero) {
  const DeviceMesh mesh({2, 3}, {"dp", "tp"});
  EXPECT_EQ(mesh.ndim(), 2);
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.size(0), 2);
  EXPECT_EQ(mesh.size(1), 3);
  EXPECT_THAT(mesh.shape(), ElementsAre(2, 3));
  EXPECT_THAT(mesh.names(), ElementsAre("dp", "tp"));
  EXPECT_THAT(mesh.ranks(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(DeviceMesh, WithoutNames_NumbersTheDims) {
  EXPECT_THAT(DeviceMesh({2, 1, 2}).names(), ElementsAre("dim_0", "dim_1", "dim_2"));
}

TEST(DeviceMesh, Coordinate_IsRowMajorOverTheRankList) {
  for (const DeviceMesh& mesh : {DeviceMesh({2, 3}, {"dp", "tp"}), scattered()}) {
    int64_t position = 0;
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t j = 0; j < 3; ++j, ++position) {
        const int64_t rank = mesh.ranks()[static_cast<size_t>(position)];
        EXPECT_EQ(mesh.position(rank), position);
        EXPECT_EQ(mesh.coordinate(rank), (Dims{i, j}));
        EXPECT_EQ(mesh.coordinate_at(position), (Dims{i, j}));
        EXPECT_EQ(mesh.rank_at(Dims{i, j}), rank);
      }
    }
  }
}

TEST(DeviceMesh, RankOutside_HasNoPlace) {
  for (const int64_t rank : {int64_t{-1}, int64_t{2}, int64_t{41}, INT64_MAX, INT64_MIN}) {
    EXPECT_FALSE(scattered().contains(rank)) << rank;
    EXPECT_EQ(scattered().position(rank), std::nullopt);
    EXPECT_EQ(scattered().coordinate(rank), std::nullopt);
  }
  EXPECT_FALSE(dp_tp().contains(-1));
  EXPECT_FALSE(dp_tp().contains(4));
  EXPECT_TRUE(dp_tp().contains(3));
}

TEST(DeviceMesh, Case08_MeshOfTheLastRanks_IsNotTheWholeJob) {
  const DeviceMesh mesh({2}, {"dp"}, {2, 3});
  EXPECT_EQ(mesh.size(), 2);
  EXPECT_EQ(mesh.coordinate(2), Dims{0});
  EXPECT_EQ(mesh.coordinate(3), Dims{1});
  EXPECT_FALSE(mesh.contains(0));
  EXPECT_FALSE(mesh.contains(1));
  EXPECT_THAT(mesh.group(0, 2), ElementsAre(2, 3));
  EXPECT_EQ(error_of([&] { mesh.group(0, 0); }), "InvalidArgument: rank 0 is not in DeviceMesh((2,), ('dp',), [2, 3])");
}

TEST(DeviceMesh, Case07_GroupsOfAnInnerDim_StartAtEveryOuterCoordinate) {
  EXPECT_THAT(dp_tp().group(1, 0), ElementsAre(0, 1));
  EXPECT_THAT(dp_tp().group(1, 3), ElementsAre(2, 3));
  EXPECT_THAT(dp_tp().sub_mesh({"tp"}, 3).ranks(), ElementsAre(2, 3));
  EXPECT_EQ(dp_tp().sub_mesh({"tp"}, 2).coordinate(3), Dims{1});
}

TEST(DeviceMesh, Group_FollowsMeshOrderNotRankOrder) {
  EXPECT_THAT(scattered().group(0, 3), ElementsAre(7, 3));
  EXPECT_THAT(scattered().group(0, 1), ElementsAre(12, 1));
  EXPECT_THAT(scattered().group(1, 0), ElementsAre(7, 0, 12));
  EXPECT_THAT(scattered().group(1, 40), ElementsAre(3, 40, 1));
}

TEST(DeviceMesh, Group_OfAMiddleDim_KeepsTheOthersFixed) {
  const DeviceMesh mesh({2, 3, 2});
  EXPECT_THAT(mesh.group(1, 9), ElementsAre(7, 9, 11));
  EXPECT_THAT(mesh.group(0, 9), ElementsAre(3, 9));
  EXPECT_THAT(mesh.group(2, 9), ElementsAre(8, 9));
}

TEST(DeviceMesh, Group_DimOutOfRange_Raises) {
  EXPECT_EQ(error_of([] { dp_tp().group(2, 0); }), "OutOfRange: mesh dim 2 is out of range for a mesh of 2 dims");
  EXPECT_EQ(error_of([] { dp_tp().group(-1, 0); }), "OutOfRange: mesh dim -1 is out of range for a mesh of 2 dims");
}

TEST(DeviceMesh, SubMesh_KeepsTheOrderOfTheNamesGiven) {
  const DeviceMesh mesh({2, 3, 2}, {"pp", "dp", "tp"});
  EXPECT_EQ(mesh.sub_mesh({"tp", "pp"}, 3), DeviceMesh({2, 2}, {"tp", "pp"}, {2, 8, 3, 9}));
  EXPECT_EQ(mesh.sub_mesh({"pp", "tp"}, 3), DeviceMesh({2, 2}, {"pp", "tp"}, {2, 3, 8, 9}));
  EXPECT_EQ(mesh.sub_mesh({"pp", "dp", "tp"}, 0), mesh);
  EXPECT_EQ(scattered().sub_mesh({"tp", "dp"}, 7), DeviceMesh({3, 2}, {"tp", "dp"}, {7, 3, 0, 40, 12, 1}));
}

TEST(DeviceMesh, SubMesh_IsTheSameThroughEachOfItsRanks) {
  for (const int64_t rank : {7, 0, 12}) {
    EXPECT_EQ(scattered().sub_mesh({"tp"}, rank), DeviceMesh({3}, {"tp"}, {7, 0, 12}));
  }
}

TEST(DeviceMesh, SubMesh_WrongNameOrRank_Raises) {
  EXPECT_EQ(error_of([] { dp_tp().sub_mesh({"pp"}, 0); }),
            "InvalidArgument: 'pp' is not a dim of the mesh; its dims are (dp, tp)");
  EXPECT_EQ(error_of([] { dp_tp().sub_mesh({"tp", "tp"}, 0); }),
            "InvalidArgument: DeviceMesh name 'tp' stands twice in (tp, tp)");
  EXPECT_EQ(error_of([] { dp_tp().sub_mesh({"tp"}, 4); }),
            "InvalidArgument: rank 4 is not in DeviceMesh((2, 2), ('dp', 'tp'))");
  EXPECT_EQ(error_of([] { dp_tp().sub_mesh({}, 0); }),
            "InvalidArgument: sub_mesh names is () but must name at least one dim");
}

TEST(DeviceMesh, DimIndex_FindsTheNameOrRaises) {
  EXPECT_EQ(dp_tp().dim_index("dp"), 0);
  EXPECT_EQ(dp_tp().dim_index("tp"), 1);
  EXPECT_EQ(error_of([] { dp_tp().dim_index("t"); }),
            "InvalidArgument: 't' is not a dim of the mesh; its dims are (dp, tp)");
}

TEST(DeviceMesh, Flatten_KeepsTheRankList) {
  EXPECT_EQ(scattered().flatten(), DeviceMesh({6}, {"dp_tp"}, {7, 0, 12, 3, 40, 1}));
  EXPECT_EQ(scattered().flatten("world").names(), std::vector<std::string>{"world"});
  EXPECT_EQ(error_of([] { dp_tp().flatten("a-b"); }),
            "InvalidArgument: DeviceMesh name 'a-b' must be made of letters, digits and underscores");
}

TEST(DeviceMesh, SameRanks_ComparesSets) {
  EXPECT_TRUE(dp_tp().same_ranks(dp_tp()));
  EXPECT_TRUE(dp_tp().same_ranks(DeviceMesh({4}, {"x"}, {3, 1, 0, 2})));
  EXPECT_TRUE(DeviceMesh({4}, {"x"}, {3, 1, 0, 2}).same_ranks(dp_tp()));
  EXPECT_FALSE(dp_tp().same_ranks(DeviceMesh({4}, {"x"}, {3, 1, 0, 4})));
  EXPECT_FALSE(dp_tp().same_ranks(DeviceMesh({2})));
  EXPECT_FALSE(DeviceMesh({2}).same_ranks(dp_tp()));
}

TEST(DeviceMesh, EqualityAndHash_CoverShapeNamesAndTheWholeRankList) {
  const DeviceMesh mesh({2, 2}, {"dp", "tp"}, {0, 1, 2, 3});
  EXPECT_EQ(mesh, dp_tp()) << "a spelled-out rank list is the same mesh";
  EXPECT_EQ(std::hash<DeviceMesh>{}(mesh), dp_tp().hash());
  for (const DeviceMesh& other :
       {DeviceMesh({4, 1}, {"dp", "tp"}), DeviceMesh({4}, {"dp"}), DeviceMesh({2, 2}, {"dp", "ep"}),
        DeviceMesh({2, 2}, {"tp", "dp"}), DeviceMesh({2, 2}, {"dp", "tp"}, {0, 1, 3, 2}),
        DeviceMesh({2, 2}, {"dp", "tp"}, {0, 1, 2, 4})}) {
    EXPECT_NE(mesh, other) << to_string(other);
    EXPECT_NE(mesh.hash(), other.hash()) << to_string(other);
  }
}

TEST(DeviceMesh, EqualMeshesOf100000Ranks_DifferByTheirLastRank) {
  Ranks ranks(100'000);
  std::iota(ranks.begin(), ranks.end(), 0);
  const DeviceMesh first({100'000}, {"dp"}, ranks);
  ranks.back() = 100'000;
  EXPECT_NE(first, DeviceMesh({100'000}, {"dp"}, ranks));
}

TEST(DeviceMesh, Of100000PermutedRanks_AnswersWithoutAWalk) {
  Ranks ranks(100'000);
  std::iota(ranks.begin(), ranks.end(), 5);
  std::ranges::reverse(ranks);
  const auto start = std::chrono::steady_clock::now();
  const DeviceMesh mesh({100, 1000}, {"dp", "tp"}, ranks);
  for (int64_t i = 0; i < mesh.size(); ++i) ASSERT_EQ(mesh.position(100'004 - i), i);
  EXPECT_EQ(mesh.position(4), std::nullopt);
  EXPECT_EQ(mesh.group(0, 100'004).size(), 100u);
  EXPECT_EQ(mesh.flatten().size(), 100'000);
  EXPECT_TRUE(mesh.same_ranks(mesh.flatten()));
  // Milliseconds with a binary search each, minutes with a walk each.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(DeviceMesh, Text_RoundTrips) {
  EXPECT_EQ(to_string(dp_tp()), "DeviceMesh((2, 2), ('dp', 'tp'))");
  EXPECT_EQ(to_string(DeviceMesh({2}, {"dp"}, {2, 3})), "DeviceMesh((2,), ('dp',), [2, 3])");
  for (const DeviceMesh& mesh : {dp_tp(), scattered(), DeviceMesh({1}), DeviceMesh({2}, {"dp"}, {1, 0})}) {
    EXPECT_EQ(parse_device_mesh(to_string(mesh)), mesh) << to_string(mesh);
  }
  EXPECT_EQ(parse_device_mesh(" DeviceMesh ( (2,2) , ('dp','tp',) ) "), dp_tp())
      << "white space and a last comma are free";
}

TEST(DeviceMesh, Parse_Malformed_SaysWhere) {
  const auto error = [](std::string_view text) { return error_of([&] { parse_device_mesh(text); }); };
  EXPECT_EQ(error(""), "InvalidArgument: cannot read '': expected 'DeviceMesh' at position 0");
  EXPECT_EQ(error("Mesh((2,))"), "InvalidArgument: cannot read 'Mesh((2,))': expected 'DeviceMesh' at position 0");
  EXPECT_EQ(error("DeviceMesh((2,))"), "InvalidArgument: cannot read 'DeviceMesh((2,))': expected ',' at position 15");
  EXPECT_EQ(error("DeviceMesh((x,), ('a',))"),
            "InvalidArgument: cannot read 'DeviceMesh((x,), ('a',))': expected an int64 at position 12");
  EXPECT_EQ(error("DeviceMesh((2,), (a,))"),
            "InvalidArgument: cannot read 'DeviceMesh((2,), (a,))': expected ''' at position 18");
  EXPECT_EQ(error("DeviceMesh((2,), ('',))"),
            "InvalidArgument: cannot read 'DeviceMesh((2,), ('',))': expected a name at position 19");
  EXPECT_EQ(error("DeviceMesh((2,), ('a',)"),
            "InvalidArgument: cannot read 'DeviceMesh((2,), ('a',)': expected ')' at position 23");
  EXPECT_EQ(error("DeviceMesh((2,), ('a',)) x"),
            "InvalidArgument: cannot read 'DeviceMesh((2,), ('a',)) x': expected the end at position 25");
  EXPECT_EQ(error("DeviceMesh((2,), ('a',), [0])"),
            "InvalidArgument: DeviceMesh has 1 ranks but its shape has room for 2");
}

TEST(DeviceMesh, ImpossibleShape_Raises) {
  EXPECT_EQ(error_of([] { DeviceMesh(Ranks{}); }),
            "InvalidArgument: DeviceMesh shape is () but a mesh has at least one dim");
  EXPECT_EQ(error_of([] { DeviceMesh({2, 0}); }),
            "InvalidArgument: DeviceMesh shape is (2, 0) but every dim must be at least 1");
  EXPECT_EQ(error_of([] { DeviceMesh({-2}); }),
            "InvalidArgument: DeviceMesh shape is (-2,) but every dim must be at least 1");
  EXPECT_EQ(error_of([] { DeviceMesh({int64_t{1} << 62, 4}); }),
            "InvalidArgument: 4611686018427387904 * 4 does not fit in int64");
}

TEST(DeviceMesh, ShapeBeyondMemory_RaisesBeforeAllocating) {
  EXPECT_EQ(error_of([] { DeviceMesh({9'000'000'000}); }),
            "InvalidArgument: DeviceMesh shape is (9000000000,) but a mesh has at most 16777216 ranks");
  EXPECT_EQ(error_of([] { parse_device_mesh("DeviceMesh((4096, 4097), ('a', 'b'))"); }),
            "InvalidArgument: DeviceMesh shape is (4096, 4097) but a mesh has at most 16777216 ranks");
}

TEST(DeviceMesh, WrongNames_Raise) {
  EXPECT_EQ(error_of([] { DeviceMesh({2, 2}, {"dp"}); }), "InvalidArgument: DeviceMesh has 1 names (dp,) but 2 dims");
  EXPECT_EQ(error_of([] { DeviceMesh({2, 2}, {"dp", "dp"}); }),
            "InvalidArgument: DeviceMesh name 'dp' stands twice in (dp, dp)");
  EXPECT_EQ(error_of([] { DeviceMesh({2}, {"d p"}); }),
            "InvalidArgument: DeviceMesh name 'd p' must be made of letters, digits and underscores");
  EXPECT_EQ(error_of([] { DeviceMesh({2}, {""}); }),
            "InvalidArgument: DeviceMesh name '' must be made of letters, digits and underscores");
}

TEST(DeviceMesh, WrongRankList_Raises) {
  const auto error = [](Ranks ranks) { return error_of([&] { DeviceMesh({2, 2}, {}, std::move(ranks)); }); };
  EXPECT_EQ(error({0, 1, 2}), "InvalidArgument: DeviceMesh has 3 ranks but its shape has room for 4");
  EXPECT_EQ(error({}), "InvalidArgument: DeviceMesh has 0 ranks but its shape has room for 4");
  EXPECT_EQ(error({0, 3, 1, 3}), "InvalidArgument: DeviceMesh rank 3 stands twice in the rank list");
  EXPECT_EQ(error({0, 1, -2, 3}), "InvalidArgument: DeviceMesh rank -2 must not be negative");
}

TEST(DeviceMesh, OfOneRank_IsAMesh) {
  const DeviceMesh mesh({1}, {"dp"}, {6});
  EXPECT_EQ(mesh.coordinate(6), Dims{0});
  EXPECT_THAT(mesh.group(0, 6), ElementsAre(6));
}

}  // namespace
}  // namespace hyper_parallel
