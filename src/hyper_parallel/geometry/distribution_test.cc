#include "hyper_parallel/geometry/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>

#include "hyper_parallel/base/text.h"
#include "tests/support/cells.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using Splits = std::vector<DimSplit>;
using Fixed = std::vector<std::optional<int64_t>>;

// ---- The truth: who owns each cell, by lists alone ----

/// Part `index` of `parts` of the list: ceil(size / parts) items each, the last ones fewer or none.
Cells chunk(const Cells& list, int64_t parts, int64_t index) {
  const auto size = static_cast<int64_t>(list.size());
  Cells part;
  for (int64_t i = 0; i < size; ++i) {
    if (i / ((size + parts - 1) / parts) == index) part.push_back(list[static_cast<size_t>(i)]);
  }
  return part;
}

/// Part `index` of `parts` of the list, dealt so that sizes differ by one at most, the longer ones first.
Cells even_part(const Cells& list, int64_t parts, int64_t index) {
  const auto size = static_cast<int64_t>(list.size());
  size_t begin = 0;
  for (int64_t part = 0; part < index; ++part) begin += static_cast<size_t>(size / parts + (part < size % parts));
  const size_t count = static_cast<size_t>(size / parts + (index < size % parts));
  return {list.begin() + static_cast<int64_t>(begin), list.begin() + static_cast<int64_t>(begin + count)};
}

/// The cells whose unit, counted along the prefix cells, is one of rank `index`'s.
Cells ragged_part(const Cells& list, const RaggedShard& ragged, const Dims& shape, int64_t index) {
  int64_t prefix = 1;
  int64_t suffix = 1;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    (std::cmp_less(dim, ragged.dim_count()) ? prefix : suffix) *= shape[dim];
  Cells part;
  for (const int64_t cell : list) {
    int64_t unit = cell / suffix * ragged.total_units() / prefix;
    int64_t rank = 0;
    while (unit >= ragged.local_units()[static_cast<size_t>(rank)]) {
      unit -= ragged.local_units()[static_cast<size_t>(rank)];
      ++rank;
    }
    if (rank == index) part.push_back(cell);
  }
  return part;
}

/// The cells with one of `rows[d]` in each tensor dim d, in row-major order.
Cells cells_at(const std::vector<Cells>& rows, const Dims& shape) {
  Cells cells{0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    Cells next;
    for (const int64_t cell : cells) {
      for (const int64_t row : rows[dim]) next.push_back(cell * shape[dim] + row);
    }
    cells = next;
  }
  return cells;
}

/// What the rank at `coordinate` owns, in the order of its local storage.
Cells true_cells(const DeviceMesh& mesh, const Splits& splits, const Dims& shape, const Dims& coordinate) {
  std::vector<Cells> rows;
  for (const int64_t size : shape) rows.push_back(all_cells({size}));
  for (size_t dim = 0; dim < splits.size(); ++dim) {
    if (const auto* shard = std::get_if<Shard>(&splits[dim])) {
      Cells& own = rows[static_cast<size_t>(shard->dim)];
      own = chunk(own, mesh.shape()[dim], coordinate[dim]);
    }
  }
  Cells cells = cells_at(rows, shape);
  for (size_t dim = 0; dim < splits.size(); ++dim) {
    const auto* ragged = std::get_if<RaggedShard>(&splits[dim]);
    if (ragged != nullptr) cells = ragged_part(cells, *ragged, shape, coordinate[dim]);
  }
  for (size_t dim = splits.size(); dim-- > 0;) {
    if (std::holds_alternative<FlatSplit>(splits[dim])) cells = even_part(cells, mesh.shape()[dim], coordinate[dim]);
  }
  return cells;
}

Cells cells_of(const Region& region, const Dims& shape) {
  Cells cells;
  for (const Box& box : region_boxes(region)) {
    const Cells part = cells_of(box, shape);
    cells.insert(cells.end(), part.begin(), part.end());
  }
  return cells;
}

bool have_common_cell(const Cells& a, const Cells& b) {
  return std::ranges::any_of(a, [&](int64_t cell) { return std::ranges::binary_search(b, cell); });
}

// ---- All distributions of a small world ----

struct World {
  std::vector<int64_t> mesh_shape;
  Dims shape;
  std::vector<int64_t> ragged_dims;  // their cells are a multiple of 3
};

const std::vector<World> kWorlds = {
    {{3}, {6, 4}, {0}},    {{4}, {5, 3}, {0, 1}},    {{2, 2}, {5, 3}, {0, 1}}, {{2, 3}, {6, 2}, {0}},
    {{3, 1}, {3, 3}, {0}}, {{2, 2, 2}, {3, 5}, {0}}, {{2, 2}, {0, 4}, {0}},    {{2, 2}, {3, 0}, {0}},
};

std::string text_of(const World& world) { return str_cat(tuple_text(world.mesh_shape), " ", tuple_text(world.shape)); }

/// Three units over `ranks` ranks, with a zero where that leaves room.
std::vector<int64_t> three_units(int64_t ranks) {
  if (ranks == 1) return {3};
  std::vector<int64_t> units(static_cast<size_t>(ranks), 0);
  units[static_cast<size_t>(ranks - 1)] = 1;
  units[ranks > 2 ? 1 : 0] = 2;
  return units;
}

std::vector<Distribution> all_distributions(const World& world) {
  const DeviceMesh mesh(world.mesh_shape);
  std::vector<Splits> found{{}};
  for (const int64_t ranks : world.mesh_shape) {
    const Splits choices = {Replicate{}, Partial{}, FlatSplit{},
                            Shard(0),    Shard(1),  RaggedShard(world.ragged_dims, three_units(ranks))};
    std::vector<Splits> longer;
    for (const Splits& head : found) {
      for (const DimSplit& choice : choices) {
        longer.push_back(head);
        longer.back().push_back(choice);
      }
    }
    found = longer;
  }
  std::erase_if(found, [](const Splits& splits) {
    const auto ragged =
        std::ranges::count_if(splits, [](const auto& s) { return std::holds_alternative<RaggedShard>(s); });
    const bool shard = std::ranges::any_of(splits, [](const auto& s) { return std::holds_alternative<Shard>(s); });
    return ragged > 1 || (ragged == 1 && shard);
  });
  std::vector<Distribution> distributions;
  for (const Splits& splits : found) distributions.emplace_back(mesh, splits, world.shape);
  return distributions;
}

/// What each rank of the distribution owns, by position.
std::vector<Cells> all_true_cells(const Distribution& distribution) {
  std::vector<Cells> cells;
  for (int64_t position = 0; position < distribution.mesh().size(); ++position) {
    cells.push_back(true_cells(distribution.mesh(), distribution.dim_splits(), distribution.shape(),
                               distribution.mesh().coordinate_at(position)));
  }
  return cells;
}

// ---- owned, local_shape ----

TEST(Distribution, Owned_IsWhatTheTruthSays_ForEveryDistributionOfSmallWorlds) {
  for (const World& world : kWorlds) {
    for (const Distribution& distribution : all_distributions(world)) {
      SCOPED_TRACE(text_of(world) + " " + short_text(distribution));
      const auto truth = all_true_cells(distribution);
      for (int64_t position = 0; position < distribution.mesh().size(); ++position) {
        const Region region = distribution.owned(distribution.mesh().coordinate_at(position));
        ASSERT_EQ(cells_of(region, world.shape), truth[static_cast<size_t>(position)]) << "position " << position;
      }
    }
  }
}

TEST(Distribution, LocalShape_IsTheBoxOrTheFlatSize) {
  const DeviceMesh mesh({2, 2});
  const Dims shape{6, 4};
  const Dims first{0, 0};
  EXPECT_EQ(Distribution(mesh, {Shard(0), Shard(1)}, shape).local_shape(first), (Dims{3, 2}));
  EXPECT_EQ(Distribution(mesh, {Replicate{}, Partial{}}, shape).local_shape(first), (Dims{6, 4}));
  EXPECT_EQ(Distribution(mesh, {RaggedShard({0}, {1, 2}), Replicate{}}, shape).local_shape(first), Dims{8});
  EXPECT_EQ(Distribution(mesh, {Shard(0), FlatSplit{}}, shape).local_shape(first), Dims{6});
  EXPECT_EQ(Distribution(mesh, {Replicate{}, Replicate{}}, {}).local_shape(first), Dims{});
  EXPECT_EQ(Distribution(mesh, {Shard(0), Replicate{}}, {0, 4}).local_shape(first), (Dims{0, 4}));
}

TEST(Distribution, Case01_UnevenRows_KeepTheGlobalShape) {
  const Distribution rows(Layout(DeviceMesh({4}), {Shard(0)}), {10, 2});
  EXPECT_EQ(rows.local_shape({0}), (Dims{3, 2}));
  EXPECT_EQ(rows.local_shape({3}), (Dims{1, 2}));
  EXPECT_EQ(rows.shape(), (Dims{10, 2}));
}

TEST(Distribution, Case02_UnevenColumns) {
  const Distribution columns(Layout(DeviceMesh({4}), {Shard(-1)}), {2, 14});
  for (const auto& [rank, width] : std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {1, 4}, {2, 4}, {3, 2}}) {
    EXPECT_EQ(columns.local_shape({rank}), (Dims{2, width}));
  }
}

TEST(Distribution, Case04And05_NestedUnevenRows_AreCutAxisByAxis) {
  const Distribution nested(Layout(DeviceMesh({2, 2}, {"a", "b"}), {Shard(0), Shard(0)}), {5, 3});
  EXPECT_EQ(nested.owned({0, 0}).box, (Box{{0, 0}, {2, 3}}));
  EXPECT_EQ(nested.owned({0, 1}).box, (Box{{2, 0}, {1, 3}}));
  EXPECT_EQ(nested.owned({1, 0}).box, (Box{{3, 0}, {1, 3}}));
  EXPECT_EQ(nested.owned({1, 1}).box, (Box{{4, 0}, {1, 3}}));
}

TEST(Distribution, Case05_EmptyShard_SitsAtTheDimsEnd) {
  const Distribution rows(Layout(DeviceMesh({4}), {Shard(0)}), {5, 10});
  for (const auto& [rank, offset, size] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{0, 0, 2}, {1, 2, 2}, {2, 4, 1}, {3, 5, 0}}) {
    EXPECT_EQ(rows.owned({rank}).box, (Box{{offset, 0}, {size, 10}}));
  }
}

TEST(Distribution, Case08_CoordinatesCountInTheMesh) {
  const DeviceMesh mesh({2}, {"dp"}, {2, 3});
  const Distribution rows(Layout(mesh, {Shard(0)}), {4});
  const Distribution ragged(Layout(mesh, {RaggedShard({0}, {0, 4})}), {4});
  EXPECT_EQ(rows.owned(*mesh.coordinate(2)).box, (Box{{0}, {2}}));
  EXPECT_EQ(rows.owned(*mesh.coordinate(3)).box, (Box{{2}, {2}}));
  EXPECT_EQ(ragged.local_shape(*mesh.coordinate(2)), Dims{0});
  EXPECT_EQ(ragged.local_shape(*mesh.coordinate(3)), Dims{4});
}

TEST(Distribution, Case25_EveryRankEmpty) {
  const DeviceMesh mesh({2});
  EXPECT_EQ(Distribution(Layout(mesh, {Shard(0)}), {0, 4}).local_shape({1}), (Dims{0, 4}));
  EXPECT_EQ(Distribution(Layout(mesh, {Shard(0)}), {4, 0}).local_shape({1}), (Dims{2, 0}));
  EXPECT_EQ(Distribution(Layout(mesh, {Shard(1)}), {4, 0}).local_shape({1}), (Dims{4, 0}));
  EXPECT_EQ(Distribution(Layout(mesh, {RaggedShard({0}, {1, 1})}), {0, 4}).local_shape({1}), Dims{0});
}

TEST(Distribution, Case34_ZeroDimTensor_OnlyReplicates) {
  const DeviceMesh mesh({2});
  EXPECT_EQ(Distribution(Layout(mesh, {Replicate{}}), {}).owned({1}), region_of(Box{}));
  EXPECT_EQ(error_of([&] { Distribution(Layout(mesh, {Shard(0)}), {}); }),
            "OutOfRange: Shard(0) is out of range for a tensor of 0 dims");
  EXPECT_EQ(error_of([&] { Distribution(Layout(mesh, {RaggedShard({0}, {1, 1})}), {}); }),
            "InvalidArgument: RaggedShard dims (0,) are more than the tensor's 0 dims");
}

TEST(Distribution, OfALayout_FoldsNegativeDims) {
  const DeviceMesh mesh({2, 2});
  EXPECT_EQ(Distribution(Layout(mesh, {Shard(-1), Partial{}}), {4, 6}),
            Distribution(mesh, {Shard(1), Partial{}}, {4, 6}));
}

TEST(Distribution, WithSplit_ChangesOneMeshDim) {
  const Distribution original(DeviceMesh({2, 2}), {Replicate{}, Replicate{}}, {4, 6});
  EXPECT_EQ(original.with_split(1, Shard(0)), Distribution(DeviceMesh({2, 2}), {Replicate{}, Shard(0)}, {4, 6}));
  EXPECT_EQ(original.dim_splits()[1], DimSplit(Replicate{}));
  EXPECT_EQ(error_of([&] { original.with_split(1, Shard(2)); }),
            "OutOfRange: Shard(2) is out of range for a tensor of 2 dims");
}

TEST(Distribution, Equality_CoversMeshSplitsAndShape) {
  const Distribution one(DeviceMesh({2}), {RaggedShard({0}, {1, 2})}, {6, 4});
  EXPECT_EQ(one, Distribution(DeviceMesh({2}), {RaggedShard({0}, {1, 2})}, {6, 4}));
  EXPECT_NE(one, Distribution(DeviceMesh({2}), {RaggedShard({0}, {2, 1})}, {6, 4}));
  EXPECT_NE(one, Distribution(DeviceMesh({2}), {RaggedShard({0}, {1, 2})}, {6, 5}));
  EXPECT_NE(one, Distribution(DeviceMesh({2}, {}, {1, 0}), {RaggedShard({0}, {1, 2})}, {6, 4}));
}

TEST(Distribution, PartialBesideRagged_IsAllowedHere) {
  const Distribution distribution(DeviceMesh({2, 2}), {Partial{}, RaggedShard({0}, {1, 2})}, {6, 4});
  EXPECT_EQ(distribution.owned({1, 0}).flat, (Interval{0, 8}));
  EXPECT_EQ(distribution.owned({1, 1}).flat, (Interval{8, 24}));
}

TEST(Distribution, SplitsWithoutMeaning_Raise) {
  const DeviceMesh mesh({2, 2});
  const RaggedShard ragged({0}, {1, 1});
  const auto error = [&](const Splits& splits, const Dims& shape) {
    return error_of([&] { Distribution(mesh, splits, shape); });
  };
  EXPECT_EQ(error({Replicate{}}, {4}), "InvalidArgument: there are 1 splits but the mesh has 2 dims");
  EXPECT_EQ(error({Shard(-1), Replicate{}}, {4}), "OutOfRange: Shard(-1) is out of range for a tensor of 1 dims");
  EXPECT_EQ(error({ragged, ragged}, {4}),
            "InvalidArgument: there are several RaggedShard but a distribution has at most one");
  EXPECT_EQ(error({ragged, Shard(0)}, {4}), "InvalidArgument: RaggedShard cannot stand beside Shard");
  EXPECT_EQ(error({Shard(0), ragged}, {4}), "InvalidArgument: RaggedShard cannot stand beside Shard");
  EXPECT_EQ(error({RaggedShard({0}, {1, 1, 1}), Replicate{}}, {3}),
            "InvalidArgument: RaggedShard local_units has 3 entries but mesh dim 'dim_0' has size 2");
  EXPECT_EQ(
      error({ragged, Replicate{}}, {3}),
      "InvalidArgument: RaggedShard local_units sum to 2 but dims (0,) of shape (3,) have 3 cells, which must be a "
      "multiple of it");
  EXPECT_EQ(error({FlatSplit{}, Replicate{}}, {4, -1}),
            "InvalidArgument: global shape (4, -1) has the negative size -1");
  EXPECT_EQ(
      error({FlatSplit{}, Replicate{}}, {int64_t{1} << 62, 4}),
      "InvalidArgument: global shape (4611686018427387904, 4) has a number of elements that does not fit in int64");
}

TEST(Distribution, ShapeThatALayoutRefuses_Raises) {
  EXPECT_EQ(error_of([] { Distribution(Layout(DeviceMesh({2}), {Replicate{}}), {-1}); }),
            "InvalidArgument: global shape (-1,) has the negative size -1");
}

TEST(Distribution, Text_NamesEachSplit) {
  const DeviceMesh mesh({2, 2, 20});
  EXPECT_EQ(short_text(Distribution(mesh, {Shard(0), FlatSplit{}, Partial{}}, {4})),
            "[Shard(0), FlatSplit(), Partial(sum)]");
  EXPECT_EQ(
      short_text(Distribution(mesh, {Replicate{}, FlatSplit{}, RaggedShard({0}, std::vector<int64_t>(20, 1))}, {20})),
      "[Replicate(), FlatSplit(), RaggedShard((0,), <20 units>)]");
}

TEST(DimSplit, OnlyShardRaggedAndFlatSplit_Split) {
  EXPECT_FALSE(splits(Replicate{}));
  EXPECT_FALSE(splits(Partial{}));
  EXPECT_TRUE(splits(Shard(0)));
  EXPECT_TRUE(splits(RaggedShard({0}, {1})));
  EXPECT_TRUE(splits(FlatSplit{}));
}

// ---- is_refined_by ----

TEST(DistributionIsRefinedBy, WhereItSaysYes_EveryRankKeepsAPart) {
  for (const World& world : kWorlds) {
    const auto distributions = all_distributions(world);
    std::vector<std::vector<Cells>> truth;
    for (const Distribution& distribution : distributions) truth.push_back(all_true_cells(distribution));
    for (size_t i = 0; i < distributions.size(); ++i) {
      for (size_t j = 0; j < distributions.size(); ++j) {
        if (!distributions[i].is_refined_by(distributions[j])) continue;
        for (size_t position = 0; position < truth[i].size(); ++position) {
          ASSERT_TRUE(std::ranges::includes(truth[i][position], truth[j][position]))
              << text_of(world) << " " << short_text(distributions[i]) << " by " << short_text(distributions[j])
              << " at position " << position;
        }
      }
    }
  }
}

TEST(DistributionIsRefinedBy, ItselfAndFromWhole_IsYes) {
  for (const World& world : kWorlds) {
    const DeviceMesh mesh(world.mesh_shape);
    const Distribution whole(mesh, Splits(world.mesh_shape.size(), Replicate{}), world.shape);
    for (const Distribution& distribution : all_distributions(world)) {
      EXPECT_TRUE(distribution.is_refined_by(distribution)) << text_of(world) << " " << short_text(distribution);
      EXPECT_TRUE(whole.is_refined_by(distribution)) << text_of(world) << " " << short_text(distribution);
    }
  }
}

TEST(DistributionIsRefinedBy, TruthTable) {
  const DeviceMesh mesh({2, 2});
  const auto refined = [&](const Splits& coarse, const Splits& fine) {
    return Distribution(mesh, coarse, {6, 4}).is_refined_by(Distribution(mesh, fine, {6, 4}));
  };
  const Replicate r;
  const FlatSplit flat;
  const RaggedShard ragged({0}, {1, 2});
  // Cutting on where the coarse one stops.
  EXPECT_TRUE(refined({Shard(0), r}, {Shard(0), Shard(0)}));
  EXPECT_TRUE(refined({Shard(0), r}, {Shard(0), Shard(1)}));
  EXPECT_TRUE(refined({Shard(0), r}, {Shard(0), flat}));
  EXPECT_TRUE(refined({r, Shard(0)}, {Shard(1), Shard(0)}));
  EXPECT_TRUE(refined({ragged, r}, {ragged, flat}));
  EXPECT_TRUE(refined({r, ragged}, {flat, ragged}));
  EXPECT_TRUE(refined({r, flat}, {flat, flat}));
  EXPECT_TRUE(refined({Partial{}, Shard(0)}, {r, Shard(0)}));
  // Another dim cuts first, or the cut is gone or elsewhere.
  EXPECT_FALSE(refined({r, Shard(0)}, {Shard(0), Shard(0)}));
  EXPECT_FALSE(refined({Shard(0), Shard(0)}, {Shard(0), r}));
  EXPECT_FALSE(refined({Shard(0), r}, {r, Shard(0)}));
  EXPECT_FALSE(refined({Shard(0), r}, {Shard(1), r}));
  EXPECT_FALSE(refined({Shard(0), r}, {r, r}));
  EXPECT_FALSE(refined({flat, r}, {flat, flat}));
  EXPECT_FALSE(refined({flat, flat}, {r, flat}));
  // A run of a block is none of a smaller block.
  EXPECT_FALSE(refined({r, flat}, {Shard(1), flat}));
  EXPECT_FALSE(refined({flat, r}, {flat, ragged}));
  EXPECT_FALSE(refined({flat, r}, {Shard(0), r}));
  EXPECT_FALSE(refined({ragged, r}, {Shard(0), r}));
  EXPECT_FALSE(refined({ragged, r}, {RaggedShard({0}, {2, 1}), r}));
  EXPECT_FALSE(refined({ragged, r}, {r, ragged}));
}

TEST(DistributionIsRefinedBy, RaggedOfOtherDimsAndUnits_ButTheSameRuns_IsYes) {
  const DeviceMesh mesh({2});
  EXPECT_TRUE(Distribution(mesh, {RaggedShard({0}, {1, 2})}, {6, 4})
                  .is_refined_by(Distribution(mesh, {RaggedShard({0, 1}, {2, 4})}, {6, 4})));
}

TEST(DistributionIsRefinedBy, MeshDimOfOneRank_CutsNothing) {
  const DeviceMesh mesh({1, 2});
  EXPECT_TRUE(Distribution(mesh, {Shard(0), Shard(0)}, {6, 4})
                  .is_refined_by(Distribution(mesh, {Replicate{}, Shard(0)}, {6, 4})));
  EXPECT_TRUE(Distribution(mesh, {RaggedShard({0}, {3}), Replicate{}}, {6, 4})
                  .is_refined_by(Distribution(mesh, {Replicate{}, Shard(1)}, {6, 4})));
}

// ---- for_each_owner ----

/// Each visited coordinate once, with its own region and the fixed values; no coordinate that owns a wanted cell is
/// missed.
void expect_owners_found(const Distribution& distribution, const std::vector<Cells>& truth, const Region& wanted,
                         const Fixed& fixed) {
  const DeviceMesh& mesh = distribution.mesh();
  std::vector<bool> visited(truth.size(), false);
  distribution.for_each_owner(wanted, fixed, [&](const Dims& coordinate, const Region& region) {
    const auto position = static_cast<size_t>(*mesh.position(mesh.rank_at(coordinate)));
    EXPECT_FALSE(visited[position]) << "visited twice";
    visited[position] = true;
    EXPECT_EQ(region, distribution.owned(coordinate));
    for (size_t dim = 0; dim < fixed.size(); ++dim) EXPECT_EQ(coordinate[dim], fixed[dim].value_or(coordinate[dim]));
  });
  const Cells cells = cells_of(wanted, distribution.shape());
  for (size_t position = 0; position < truth.size(); ++position) {
    const Dims coordinate = mesh.coordinate_at(static_cast<int64_t>(position));
    bool allowed = true;
    for (size_t dim = 0; dim < fixed.size(); ++dim)
      allowed = allowed && fixed[dim].value_or(coordinate[dim]) == coordinate[dim];
    if (allowed && have_common_cell(cells, truth[position])) {
      EXPECT_TRUE(visited[position]) << "missed " << tuple_text(coordinate);
    }
  }
}

TEST(DistributionForEachOwner, FindsEveryOwner_ForEveryPairOfDistributionsOfSmallWorlds) {
  for (const World& world : kWorlds) {
    const auto distributions = all_distributions(world);
    const Dims last = distributions[0].mesh().coordinate_at(distributions[0].mesh().size() - 1);
    for (const Distribution& source : distributions) {
      const auto truth = all_true_cells(source);
      for (const Distribution& target : distributions) {
        if (testing::Test::HasFailure()) return;
        SCOPED_TRACE(text_of(world) + " " + short_text(target) + " wants from " + short_text(source));
        const Region wanted = target.owned(last);
        Fixed fixed(world.mesh_shape.size());
        expect_owners_found(source, truth, wanted, fixed);
        fixed[0] = last[0];
        expect_owners_found(source, truth, wanted, fixed);
        for (size_t dim = 0; dim < fixed.size(); ++dim) fixed[dim] = 0;
        expect_owners_found(source, truth, wanted, fixed);
      }
    }
  }
}

std::vector<std::string> visited_by(const Distribution& distribution, const Region& wanted, const Fixed& fixed) {
  std::vector<std::string> visited;
  distribution.for_each_owner(
      wanted, fixed, [&](const Dims& coordinate, const Region&) { visited.push_back(tuple_text(coordinate)); });
  return visited;
}

using Texts = std::vector<std::string>;

TEST(DistributionForEachOwner, VisitsOnlyShardsThatTheWantedBoxTouches) {
  const Distribution nested(DeviceMesh({2, 2}), {Shard(0), Shard(0)}, {5, 3});
  EXPECT_EQ(visited_by(nested, region_of({{2, 0}, {2, 3}}), {{}, {}}), (Texts{"(0, 1)", "(1, 0)"}));
  EXPECT_EQ(visited_by(nested, region_of({{2, 0}, {2, 3}}), {1, {}}), Texts{"(1, 0)"});
  EXPECT_EQ(visited_by(nested, region_of({{2, 0}, {2, 3}}), {1, 1}), Texts{});
}

TEST(DistributionForEachOwner, VisitsEachReplicaUnlessFixed) {
  const Distribution replicated(DeviceMesh({2, 2}), {Replicate{}, Shard(0)}, {4});
  EXPECT_EQ(visited_by(replicated, region_of({{0}, {1}}), {{}, {}}), (Texts{"(0, 0)", "(1, 0)"}));
  EXPECT_EQ(visited_by(replicated, region_of({{0}, {1}}), {1, {}}), Texts{"(1, 0)"});
}

TEST(DistributionForEachOwner, OfAnEmptyRegion_VisitsNobody) {
  const Distribution replicated(DeviceMesh({2}), {Replicate{}}, {4});
  EXPECT_EQ(visited_by(replicated, region_of({{4}, {0}}), {{}}), Texts{});
}

TEST(DistributionForEachOwner, Of100000Ranks_VisitsOnlyTheOwners) {
  const DeviceMesh mesh({100'000});
  std::vector<int64_t> units(100'000, 2);
  units[500] = 0;
  units[501] = 4;
  const Distribution ragged(mesh, {RaggedShard({0}, units)}, {200'000});
  const Distribution rows(mesh, {Shard(0)}, {200'000});
  const auto start = std::chrono::steady_clock::now();
  for (int64_t rank = 0; rank < 100'000; rank += 10) {
    ASSERT_EQ(visited_by(ragged, rows.owned({rank}), {{}}), Texts{rank == 500 ? "(501,)" : tuple_text(Dims{rank})});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace hyper_parallel
