#include "hyper_parallel/layout/tensor_map.h"

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

std::string entry_text(const std::vector<int64_t>& axes) {
  if (axes.empty()) return "-1";
  return axes.size() == 1 ? str_cat(axes.front()) : tuple_text(axes);
}

void place_shards(const TensorMap& map, std::vector<Placement>& placements) {
  const int64_t mesh_ndim = static_cast<int64_t>(placements.size());
  for (size_t tensor_dim = 0; tensor_dim < map.entries.size(); ++tensor_dim) {
    const auto& axes = map.entries[tensor_dim];
    for (size_t i = 0; i < axes.size(); ++i) {
      HP_CHECK(axes[i] >= 0 && axes[i] < mesh_ndim, kInvalidArgument, "tensor_map ", to_string(map), " names axis ",
               axes[i], " but the mesh has ", mesh_ndim, " dims");
      Placement& placement = placements[static_cast<size_t>(mesh_ndim - 1 - axes[i])];
      HP_CHECK(is_replicate(placement), kInvalidArgument, "tensor_map ", to_string(map), " uses axis ", axes[i],
               " which already is ", to_string(placement));
      HP_CHECK(i == 0 || axes[i] < axes[i - 1], kUnimplemented, "tensor_map ", to_string(map),
               " splits a tensor dim by an inner mesh axis first, which placements cannot say");
      placement = Shard(static_cast<int64_t>(tensor_dim));
    }
  }
}

}  // namespace

std::string to_string(const TensorMap& map) {
  std::vector<std::string> entries;
  for (const auto& axes : map.entries) entries.push_back(entry_text(axes));
  return tuple_text(entries);
}

TensorMap placement_to_tensor_map(const Layout& layout, int64_t ndim) {
  const Layout folded = layout.folded(ndim);
  const int64_t mesh_ndim = layout.mesh().ndim();
  TensorMap map{std::vector<std::vector<int64_t>>(static_cast<size_t>(ndim)),
                std::vector<std::optional<ReduceOp>>(static_cast<size_t>(mesh_ndim)), folded.ragged_shard()};
  const std::vector<Placement> normal = folded.normal_placements();
  for (size_t mesh_dim = 0; mesh_dim < normal.size(); ++mesh_dim) {
    if (const auto* shard = std::get_if<Shard>(&normal[mesh_dim])) {
      map.entries[static_cast<size_t>(shard->dim)].push_back(mesh_ndim - 1 - static_cast<int64_t>(mesh_dim));
    } else if (const auto* partial = std::get_if<Partial>(&normal[mesh_dim])) {
      map.partial[mesh_dim] = partial->op;
    }
  }
  return map;
}

Layout tensor_map_to_placement(const DeviceMesh& mesh, const TensorMap& map) {
  std::vector<Placement> placements(static_cast<size_t>(mesh.ndim()), Replicate{});
  HP_CHECK(map.partial.empty() || map.partial.size() == placements.size(), kInvalidArgument, "tensor_map has ",
           map.partial.size(), " partial entries but the mesh has ", mesh.ndim(), " dims");
  for (size_t mesh_dim = 0; mesh_dim < map.partial.size(); ++mesh_dim) {
    if (map.partial[mesh_dim]) placements[mesh_dim] = Partial(*map.partial[mesh_dim]);
  }
  if (map.ragged) {
    HP_CHECK(map.ragged->mesh_dim >= 0 && map.ragged->mesh_dim < mesh.ndim(), kInvalidArgument,
             "tensor_map is ragged on mesh dim ", map.ragged->mesh_dim, " but the mesh has ", mesh.ndim(), " dims");
    Placement& placement = placements[static_cast<size_t>(map.ragged->mesh_dim)];
    HP_CHECK(is_replicate(placement), kInvalidArgument, "tensor_map is ragged on mesh dim ", map.ragged->mesh_dim,
             " which already is ", to_string(placement));
    placement = map.ragged->placement;
  }
  place_shards(map, placements);
  return Layout(mesh, std::move(placements)).folded(static_cast<int64_t>(map.entries.size()));
}

}  // namespace hyper_parallel
