#include "hyper_parallel/torch/local_shape.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/geometry/distribution.h"
#include "hyper_parallel/torch/messages.h"

namespace hyper_parallel {
namespace {

/// torch allows 64 dims; a message holds the number of dims and their sizes.
constexpr int64_t kMaxDims = 64;

void check_ragged_local(const at::Tensor& local, int64_t expected, int64_t rank) {
  HP_CHECK(local.dim() == 1, kInvalidArgument, "local has shape ", tuple_text(local.sizes()),
           " but with RaggedShard it must be 1-D: the flat run of rank ", rank);
  HP_CHECK(local.is_contiguous(), kInvalidArgument, "local has stride ", local.stride(0),
           " but with RaggedShard it must be contiguous");
  HP_CHECK(local.numel() == expected, kInvalidArgument, "local has ", local.numel(), " elements but rank ", rank,
           " owns ", expected, " of them under RaggedShard");
}

std::vector<int64_t> shape_message(const at::Tensor& local) {
  HP_CHECK(local.dim() <= kMaxDims, kInvalidArgument, "local has ", local.dim(), " dims but at most ", kMaxDims,
           " can be told to other ranks");
  std::vector<int64_t> message(static_cast<size_t>(kMaxDims) + 1, 0);
  message[0] = local.dim();
  std::ranges::copy(local.sizes(), message.begin() + 1);
  return message;
}

/// The local shapes of all ranks of the mesh, in mesh order.
std::vector<std::vector<int64_t>> gather_shapes(const at::Tensor& local, const MeshCommunicator& mesh) {
  const std::vector<int64_t> own = shape_message(local);
  const auto options = at::TensorOptions().dtype(at::kLong).device(local.device());
  at::Tensor mine = at::empty({kMaxDims + 1}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(own, mine.mutable_data_ptr<int64_t>());
  mine = mine.to(options.device());
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (const int64_t rank : mesh.mesh().ranks()) {
    if (rank == mesh.rank()) continue;
    sends.push_back({mesh.group_rank(rank), mine});
    receives.push_back({mesh.group_rank(rank), at::empty({kMaxDims + 1}, options)});
  }
  exchange_messages(mesh.group(), sends, receives);
  std::vector<std::vector<int64_t>> shapes;
  size_t next = 0;
  for (const int64_t rank : mesh.mesh().ranks()) {
    const at::Tensor message = (rank == mesh.rank() ? mine : receives[next++].tensor).cpu();
    const int64_t* values = message.const_data_ptr<int64_t>();
    shapes.emplace_back(values + 1, values + 1 + values[0]);
  }
  return shapes;
}

/// The size of tensor dim `dim`: the sum of the local sizes along the mesh dims that shard it, the other coordinates
/// being 0.
int64_t summed_size(const Layout& layout, const std::vector<std::vector<int64_t>>& shapes, size_t dim) {
  int64_t sum = 0;
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    const Dims coordinate = layout.mesh().coordinate_at(position);
    bool counts = true;
    for (size_t mesh_dim = 0; mesh_dim < coordinate.size(); ++mesh_dim) {
      const bool shards = layout.placements()[mesh_dim] == Placement(Shard(static_cast<int64_t>(dim)));
      counts = counts && (shards || coordinate[mesh_dim] == 0);
    }
    if (counts) sum = checked_add(sum, shapes[static_cast<size_t>(position)][dim]);
  }
  return sum;
}

}  // namespace

void check_local(const at::Tensor& local, const Layout& layout, std::span<const int64_t> shape, int64_t rank) {
  const auto coordinate = layout.mesh().coordinate(rank);
  if (!coordinate) {
    HP_CHECK(local.numel() == 0, kInvalidArgument, "local has ", local.numel(), " elements but rank ", rank,
             " is outside the mesh and owns none");
    return;
  }
  const Dims expected = Distribution(layout, Dims(shape)).local_shape(*coordinate);
  if (layout.is_ragged()) {
    check_ragged_local(local, expected[0], rank);
    return;
  }
  HP_CHECK(std::ranges::equal(local.sizes(), expected), kInvalidArgument, "local has shape ", tuple_text(local.sizes()),
           " but rank ", rank, " owns ", tuple_text(expected), " of shape ", tuple_text(shape), " under ",
           short_text(layout.placements()));
}

std::vector<int64_t> infer_global_shape(const at::Tensor& local, const Layout& layout, const MeshCommunicator& mesh) {
  const bool whole = std::ranges::none_of(layout.placements(), is_shard);
  if (whole && mesh.is_member()) return local.sizes().vec();
  HP_CHECK(mesh.is_member(), kInvalidArgument, "from_local: shape is missing but rank ", mesh.rank(),
           " is outside the mesh and cannot tell it");
  const auto shapes = gather_shapes(local, mesh);
  const int64_t ndim = std::ssize(shapes.front());
  const Layout folded = layout.folded(ndim);
  for (const auto& shape : shapes) {
    HP_CHECK(std::ssize(shape) == ndim, kInvalidArgument, "from_local: the ranks' local tensors have ", ndim, " and ",
             shape.size(), " dims");
  }
  std::vector<int64_t> global;
  for (size_t dim = 0; std::cmp_less(dim, ndim); ++dim) global.push_back(summed_size(folded, shapes, dim));
  const Distribution distribution(folded, Dims(global));
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    const Dims expected = distribution.local_shape(layout.mesh().coordinate_at(position));
    const auto& shape = shapes[static_cast<size_t>(position)];
    HP_CHECK(std::ranges::equal(shape, expected), kInvalidArgument, "from_local: rank ",
             layout.mesh().ranks()[static_cast<size_t>(position)], " has a local of shape ", tuple_text(shape),
             " but owns ", tuple_text(expected), " of shape ", tuple_text(global),
             ", to which the local sizes add up, under ", short_text(layout.placements()));
  }
  return global;
}

}  // namespace hyper_parallel
