#include "examples/reshard_model/expected_part.h"

#include <algorithm>
#include <numeric>
#include <variant>
#include <vector>

namespace hyper_parallel::examples {

at::Tensor expected_part(const DTensor& tensor, const at::Tensor& whole) {
  const DeviceMesh& mesh = tensor.layout().mesh();
  const Dims coordinate = *mesh.coordinate(tensor.mesh().rank());
  at::Tensor part = whole;
  for (size_t mesh_dim = 0; mesh_dim < coordinate.size(); ++mesh_dim) {
    const Placement& placement = tensor.placements()[mesh_dim];
    if (const auto* shard = std::get_if<Shard>(&placement)) {
      const int64_t ranks = mesh.size(static_cast<int64_t>(mesh_dim));
      const int64_t size = part.size(shard->dim);
      const int64_t chunk = (size + ranks - 1) / ranks;
      const int64_t begin = std::min(chunk * coordinate[mesh_dim], size);
      part = part.narrow(shard->dim, begin, std::min(chunk, size - begin));
    } else if (const auto* ragged = std::get_if<RaggedShard>(&placement)) {
      const std::vector<int64_t>& units = ragged->local_units();
      const auto own = units.begin() + coordinate[mesh_dim];
      const int64_t per_unit = whole.numel() / std::accumulate(units.begin(), units.end(), int64_t{0});
      part = whole.flatten().narrow(0, std::accumulate(units.begin(), own, int64_t{0}) * per_unit, *own * per_unit);
    }
  }
  return part;
}

}  // namespace hyper_parallel::examples
