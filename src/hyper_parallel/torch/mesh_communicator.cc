#include "hyper_parallel/torch/mesh_communicator.h"

#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/group_calls.h"

namespace hyper_parallel {
namespace {

/// Plans of one training step: a few layouts times the distinct shapes of a model.
constexpr size_t kCachedPlans = 4096;

DeviceMesh checked_members(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::vector<int64_t> members) {
  check_group("MeshCommunicator", group);
  const size_t size = static_cast<size_t>(group->getSize());
  if (members.empty()) {
    members.resize(size);
    std::iota(members.begin(), members.end(), int64_t{0});
  }
  HP_CHECK(members.size() == size, kInvalidArgument, "MeshCommunicator members are ", members.size(),
           " ranks but the group has ", size);
  return DeviceMesh({static_cast<int64_t>(size)}, {"group"}, std::move(members));
}

}  // namespace

MeshCommunicator::MeshCommunicator(const c10::intrusive_ptr<c10d::ProcessGroup>& group, DeviceMesh mesh,
                                   std::vector<int64_t> members)
    : MeshCommunicator(
          [&] {
            DeviceMesh checked = checked_members(group, std::move(members));
            const int64_t rank = checked.ranks()[static_cast<size_t>(group->getRank())];
            return std::shared_ptr<Shared>(new Shared{group, std::move(checked), rank, PlanCache(kCachedPlans)});
          }(),
          std::move(mesh)) {}

MeshCommunicator::MeshCommunicator(std::shared_ptr<Shared> shared, DeviceMesh mesh)
    : shared_(std::move(shared)), mesh_(std::move(mesh)) {
  for (const int64_t rank : mesh_.ranks()) {
    HP_CHECK(shared_->members.contains(rank), kInvalidArgument, to_string(mesh_), " holds rank ", rank,
             " but the process group's ranks are ", tuple_text(shared_->members.ranks()));
  }
}

MeshCommunicator MeshCommunicator::with_mesh(DeviceMesh mesh) const { return {shared_, std::move(mesh)}; }

MeshCommunicator MeshCommunicator::sub_mesh(const std::vector<std::string>& names) const {
  return with_mesh(mesh_.sub_mesh(names, rank()));
}

int64_t MeshCommunicator::group_rank(int64_t global_rank) const {
  const auto position = shared_->members.position(global_rank);
  HP_DCHECK(position.has_value());
  return *position;
}

std::vector<int64_t> MeshCommunicator::mesh_group_ranks() const {
  std::vector<int64_t> ranks;
  ranks.reserve(mesh_.ranks().size());
  for (const int64_t rank : mesh_.ranks()) ranks.push_back(group_rank(rank));
  return ranks;
}

}  // namespace hyper_parallel
