#include "hyper_parallel/random/region_runs.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/geometry/distribution.h"
#include "tests/support/cells.h"

namespace hyper_parallel {
namespace {

std::vector<RegionRun> runs_of(const Region& region, const Dims& shape) {
  std::vector<RegionRun> runs;
  for_each_run(region, shape, [&](const RegionRun& run) { runs.push_back(run); });
  return runs;
}

/// The cells that the runs name, in local order; fails where local storage is not filled from 0 on.
Cells cells_of_runs(const std::vector<RegionRun>& runs) {
  Cells cells;
  for (const RegionRun& run : runs) {
    EXPECT_EQ(run.local.begin, static_cast<int64_t>(cells.size()));
    EXPECT_FALSE(run.local.empty());
    for (int64_t i = 0; i < run.local.size(); ++i) cells.push_back(run.first + i);
  }
  return cells;
}

TEST(RegionRuns, OfColumns_AreOneForEachRow) {
  EXPECT_EQ(runs_of(region_of({{0, 1}, {2, 2}}), {2, 4}), (std::vector<RegionRun>{{1, {0, 2}}, {5, {2, 4}}}));
}

TEST(RegionRuns, OfRows_AreOne) {
  EXPECT_EQ(runs_of(region_of({{2, 0, 0}, {3, 4, 5}}), {6, 4, 5}), (std::vector<RegionRun>{{40, {0, 60}}}));
  EXPECT_EQ(runs_of(region_of(whole_box({2, 3})), {2, 3}), (std::vector<RegionRun>{{0, {0, 6}}}));
}

TEST(RegionRuns, OfAScalar_AreOneCell) {
  EXPECT_EQ(runs_of(region_of(Box{}), {}), (std::vector<RegionRun>{{0, {0, 1}}}));
}

TEST(RegionRuns, OfNoCells_AreNone) {
  EXPECT_TRUE(runs_of(region_of({{3, 0}, {0, 4}}), {3, 4}).empty());
  EXPECT_TRUE(runs_of(region_of(whole_box({3, 0, 2})), {3, 0, 2}).empty());
  EXPECT_TRUE(runs_of({whole_box({3, 4}), {5, 5}}, {3, 4}).empty());
}

TEST(RegionRuns, OfEveryBox_HoldItsCellsInOrder) {
  const Dims shape{2, 3, 4};
  for (const Box& box : {Box{{0, 0, 0}, {2, 3, 4}}, Box{{0, 1, 0}, {2, 2, 4}}, Box{{1, 0, 2}, {1, 3, 2}},
                         Box{{0, 0, 3}, {2, 3, 1}}, Box{{1, 2, 3}, {1, 1, 1}}, Box{{0, 1, 1}, {2, 1, 2}}}) {
    EXPECT_EQ(cells_of_runs(runs_of(region_of(box), shape)), cells_of(box, shape)) << to_string(box);
  }
}

TEST(RegionRuns, OfEveryFlatPartOfABox_AreThatPartOfItsCells) {
  const Dims shape{3, 4, 3};
  const Box box{{1, 1, 0}, {2, 3, 2}};
  const Cells cells = cells_of(box, shape);
  for (int64_t begin = 0; begin <= box.numel(); ++begin) {
    for (int64_t end = begin; end <= box.numel(); ++end) {
      EXPECT_EQ(cells_of_runs(runs_of({box, {begin, end}}, shape)), Cells(cells.begin() + begin, cells.begin() + end));
    }
  }
}

TEST(RegionRuns, OfAllRanks_HoldEveryCell) {
  const DeviceMesh mesh({2, 3});
  const Dims shape{5, 7};
  for (const auto& placements : std::vector<std::vector<Placement>>{
           {Shard(0), Shard(0)}, {Shard(1), Shard(1)}, {Shard(0), Shard(1)}, {Shard(1), Shard(0)}}) {
    const Distribution distribution(Layout(mesh, placements), shape);
    std::vector<int> times(35, 0);
    for (int64_t position = 0; position < mesh.size(); ++position) {
      const Region region = distribution.owned(mesh.coordinate_at(position));
      for (const int64_t cell : cells_of_runs(runs_of(region, shape))) ++times[static_cast<size_t>(cell)];
    }
    EXPECT_EQ(times, std::vector<int>(35, 1)) << short_text(distribution);
  }
}

}  // namespace
}  // namespace hyper_parallel
