// What is printed can be read back, and equal values hash alike.

#include <functional>

#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/layout/tensor_map.h"
#include "tests/property/random_cases.h"

namespace hyper_parallel::test {
namespace {

TEST(MeshText, ReadBack_IsTheSameMesh) {
  check_property(2000, [] {
    const LayoutOfShape value = *drawn(draw_layout_of_shape);
    const DeviceMesh& mesh = value.layout.mesh();
    const DeviceMesh parsed = parse_device_mesh(to_string(mesh));
    RC_ASSERT(parsed == mesh);
    RC_ASSERT(std::hash<DeviceMesh>{}(parsed) == std::hash<DeviceMesh>{}(mesh));
  });
}

TEST(PlacementText, ReadBack_IsTheSamePlacement) {
  check_property(2000, [] {
    const LayoutOfShape value = *drawn(draw_layout_of_shape);
    const std::vector<Placement>& placements = value.layout.placements();
    RC_ASSERT(parse_placements(to_string(placements)) == placements);
    for (const Placement& placement : placements) {
      const Placement parsed = parse_placement(to_string(placement));
      RC_ASSERT(parsed == placement);
      RC_ASSERT(hash_value(parsed) == hash_value(placement));
    }
  });
}

TEST(LayoutText, ReadBack_IsTheSameLayout) {
  check_property(2000, [] {
    const LayoutOfShape value = *drawn(draw_layout_of_shape);
    const Layout parsed = parse_layout(to_string(value.layout));
    RC_ASSERT(parsed == value.layout);
    RC_ASSERT(std::hash<Layout>{}(parsed) == std::hash<Layout>{}(value.layout));
  });
}

TEST(LayoutEquality, HoldsExactlyWhereTheTextIsTheSame) {
  check_property(3000, [] {
    const LayoutOfShape first = *drawn(draw_layout_of_shape);
    // Half of them on the same mesh, where equal layouts are not rare.
    const LayoutOfShape second = *drawn([first] {
      if (draw_chance(50)) return draw_layout_of_shape();
      return LayoutOfShape{draw_layout_without_partial(first.layout.mesh(), first.shape), first.shape};
    });
    RC_ASSERT((first.layout == second.layout) == (to_string(first.layout) == to_string(second.layout)));
  });
}

TEST(TensorMap, ThereAndBack_IsTheFoldedLayout) {
  check_property(4000, [] {
    const LayoutOfShape value = *drawn(draw_layout_of_shape);
    const int64_t ndim = static_cast<int64_t>(value.shape.size());
    const TensorMap map = placement_to_tensor_map(value.layout, ndim);
    RC_ASSERT(tensor_map_to_placement(value.layout.mesh(), map) == value.layout.folded(ndim));
  });
}

TEST(TensorMap, Entries_AreTheAxesThatShardTheDimOutermostFirst) {
  check_property(2000, [] {
    const LayoutOfShape value = *drawn(draw_layout_of_shape);
    const int64_t ndim = static_cast<int64_t>(value.shape.size());
    const TensorMap map = placement_to_tensor_map(value.layout, ndim);
    const std::vector<Placement>& placements = value.layout.placements();
    RC_ASSERT(map.entries.size() == value.shape.size());
    for (int64_t dim = 0; dim < ndim; ++dim) {
      std::vector<int64_t> axes;
      for (size_t mesh_dim = 0; mesh_dim < placements.size(); ++mesh_dim) {
        const auto* shard = std::get_if<Shard>(&placements[mesh_dim]);
        if (shard == nullptr || (shard->dim != dim && shard->dim + ndim != dim)) continue;
        axes.push_back(static_cast<int64_t>(placements.size() - 1 - mesh_dim));
      }
      RC_ASSERT(map.entries[static_cast<size_t>(dim)] == axes);
    }
  });
}

}  // namespace
}  // namespace hyper_parallel::test
