// What each rank owns and who owns a region, against walks over all cells.

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/geometry/distribution.h"
#include "tests/property/cells.h"
#include "tests/property/random_cases.h"
#include "tests/reference/from_layout.h"

namespace hyper_parallel::test {
namespace {

bool holds(const Cells& cells, int64_t cell) { return std::ranges::count(cells, cell) > 0; }

/// Calls `visit` with every coordinate of the mesh.
void walk_mesh(const DeviceMesh& mesh, const std::function<void(const Dims&)>& visit) { walk(mesh.shape(), visit); }

struct DistributionCase {
  Distribution distribution;
};

std::ostream& operator<<(std::ostream& out, const DistributionCase& value) {
  return out << "shape " << tuple_text(value.distribution.shape()) << " on " << to_string(value.distribution.mesh())
             << " as " << short_text(value.distribution);
}

DistributionCase draw_any_distribution() {
  const DeviceMesh mesh = draw_mesh();
  return {draw_distribution(mesh, draw_shape())};
}

TEST(OwnedRegion, OfALayout_IsTheTruth) {
  check_property(4000, [] {
    const LayoutOfShape value = *drawn(draw_layout_of_shape);
    const reference::Scheme scheme = reference::scheme_of(value.layout, value.shape.to_vector());
    const Distribution distribution(value.layout, value.shape);
    for (const int64_t rank : scheme.ranks) {
      const Region region = distribution.owned(value.layout.mesh().coordinate(rank).value());
      RC_ASSERT(cells_of(region, value.shape) == reference::owned_elements(scheme, rank));
    }
  });
}

TEST(OwnedRegion, Regions_TileTheTensorOnceForEachReplica) {
  check_property(3000, [] {
    const Distribution distribution = (*drawn(draw_any_distribution)).distribution;
    const DeviceMesh& mesh = distribution.mesh();
    int64_t replicas = 1;
    for (int64_t dim = 0; dim < mesh.ndim(); ++dim) {
      if (!splits(distribution.dim_splits()[static_cast<size_t>(dim)])) replicas *= mesh.size(dim);
    }
    std::map<int64_t, int64_t> owners;
    for (int64_t cell = 0; cell < count_cells(distribution.shape()); ++cell) owners[cell] = 0;
    walk_mesh(mesh, [&](const Dims& coordinate) {
      for (const int64_t cell : cells_of(distribution.owned(coordinate), distribution.shape())) ++owners[cell];
    });
    for (const auto& [cell, count] : owners) RC_ASSERT(count == replicas);
  });
}

TEST(OwnedRegion, LocalShape_HoldsTheRegion) {
  check_property(1000, [] {
    const Distribution distribution = (*drawn(draw_any_distribution)).distribution;
    walk_mesh(distribution.mesh(), [&](const Dims& coordinate) {
      int64_t numel = 1;
      for (const int64_t size : distribution.local_shape(coordinate)) numel *= size;
      RC_ASSERT(numel == distribution.owned(coordinate).numel());
    });
  });
}

using Fixed = std::vector<std::optional<int64_t>>;

/// A value on some mesh dims, nothing on the others.
Fixed draw_fixed(const DeviceMesh& mesh) {
  Fixed fixed(mesh.shape().size());
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    if (draw_chance(30)) fixed[static_cast<size_t>(dim)] = draw(0, mesh.size(dim) - 1);
  }
  return fixed;
}

TEST(Owners, OfARegion_AreAllVisitedOnceAndWithinWhatIsFixed) {
  check_property(4000, [] {
    const Distribution distribution = (*drawn(draw_any_distribution)).distribution;
    const Region wanted = *drawn([distribution] { return draw_region(distribution.shape()); });
    const Fixed fixed = *drawn([distribution] { return draw_fixed(distribution.mesh()); });
    const auto agrees = [&](const Dims& coordinate) {
      for (size_t dim = 0; dim < fixed.size(); ++dim) {
        if (fixed[dim] && *fixed[dim] != coordinate[dim]) return false;
      }
      return true;
    };
    std::map<std::vector<int64_t>, int64_t> visits;
    distribution.for_each_owner(wanted, fixed, [&](const Dims& coordinate, const Region& region) {
      ++visits[coordinate.to_vector()];
      RC_ASSERT(agrees(coordinate));
      RC_ASSERT(region == distribution.owned(coordinate));
    });
    const Cells needed = cells_of(wanted, distribution.shape());
    walk_mesh(distribution.mesh(), [&](const Dims& coordinate) {
      const Cells owned = cells_of(distribution.owned(coordinate), distribution.shape());
      const bool is_owner = std::ranges::any_of(owned, [&](int64_t cell) { return holds(needed, cell); });
      const int64_t count = visits[coordinate.to_vector()];
      RC_ASSERT(count <= 1);
      if (is_owner && agrees(coordinate)) RC_ASSERT(count == 1);
    });
  });
}

/// Half of them `coarse` with more splits: unrelated ones are seldom finer.
DistributionCase draw_finer(const Distribution& coarse) {
  if (!draw_chance(50)) return {draw_distribution(coarse.mesh(), coarse.shape())};
  Distribution finer = coarse;
  for (int64_t dim = 0; dim < finer.mesh().ndim(); ++dim) {
    const bool is_free = !splits(finer.dim_splits()[static_cast<size_t>(dim)]);
    if (is_free && draw_chance(50)) finer = finer.with_split(dim, FlatSplit{});
  }
  return {finer};
}

TEST(Refinement, WhereClaimed_HoldsOnEveryRank) {
  int64_t claimed = 0;
  check_property(4000, [&claimed] {
    const Distribution coarse = (*drawn(draw_any_distribution)).distribution;
    const Distribution fine = (*drawn([coarse] { return draw_finer(coarse); })).distribution;
    if (!coarse.is_refined_by(fine)) return;
    ++claimed;
    walk_mesh(coarse.mesh(), [&](const Dims& coordinate) {
      const Cells whole = cells_of(coarse.owned(coordinate), coarse.shape());
      for (const int64_t cell : cells_of(fine.owned(coordinate), fine.shape())) RC_ASSERT(holds(whole, cell));
    });
  });
  EXPECT_GT(claimed, 500);
}

}  // namespace
}  // namespace hyper_parallel::test
