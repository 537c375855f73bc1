#include "hyper_parallel/torch/local_shape.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

#include "hyper_parallel/torch/messages.h"

namespace hyper_parallel {
namespace {

/// The number of dims and their sizes.
std::vector<int64_t> shape_message(const at::Tensor& local) {
  std::vector<int64_t> message(static_cast<size_t>(kMostLocalDims) + 1, 0);
  message[0] = local.dim();
  std::ranges::copy(local.sizes(), message.begin() + 1);
  return message;
}

/// The local shapes of all ranks of the mesh, in mesh order.
std::vector<std::vector<int64_t>> gather_shapes(const at::Tensor& local, const MeshCommunicator& mesh) {
  const std::vector<int64_t> own = shape_message(local);
  const auto options = at::TensorOptions().dtype(at::kLong).device(local.device());
  at::Tensor mine = at::empty({kMostLocalDims + 1}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(own, mine.mutable_data_ptr<int64_t>());
  mine = mine.to(options.device());
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (const int64_t rank : mesh.mesh().ranks()) {
    if (rank == mesh.rank()) continue;
    sends.push_back({mesh.group_rank(rank), mine});
    receives.push_back({mesh.group_rank(rank), at::empty({kMostLocalDims + 1}, options)});
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

}  // namespace

void check_local(const at::Tensor& local, const Layout& layout, std::span<const int64_t> shape, int64_t rank) {
  check_local(LocalShape{local.sizes(), local.strides()}, layout, shape, rank);
}

std::vector<int64_t> infer_global_shape(const at::Tensor& local, const Layout& layout, const MeshCommunicator& mesh) {
  if (auto known = known_global_shape(layout, local.sizes(), mesh.rank())) return *std::move(known);
  return infer_global_shape(layout, gather_shapes(local, mesh));
}

}  // namespace hyper_parallel
