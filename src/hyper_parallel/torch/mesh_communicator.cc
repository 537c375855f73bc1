#include "hyper_parallel/torch/mesh_communicator.h"

#include <atomic>
#include <mutex>
#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/group_calls.h"
#include "hyper_parallel/torch/random_state.h"

namespace hyper_parallel {
namespace {

/// Plans of one training step: a few layouts times the distinct shapes of a model.
constexpr size_t kCachedPlans = 4096;
constexpr size_t kCachedCalls = 4096;

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

std::shared_ptr<RandomState> or_its_own(std::shared_ptr<RandomState> random) {
  return random ? std::move(random) : std::make_shared<RandomState>();
}

/// Throws kInvalidArgument if the mesh has a rank outside `members`.
void check_holds(const DeviceMesh& members, const DeviceMesh& mesh) {
  for (const int64_t rank : mesh.ranks()) {
    HP_CHECK(members.contains(rank), kInvalidArgument, to_string(mesh), " holds rank ", rank,
             " but the process group's ranks are ", tuple_text(members.ranks()));
  }
}

}  // namespace

class MeshCommunicator::Shared {
 public:
  struct Group {
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    DeviceMesh members;  // 1-D, in group order: position <-> rank
  };

  Shared(Group group, std::shared_ptr<RandomState> random)
      : rank_(group.members.ranks()[static_cast<size_t>(group.group->getRank())]),
        random_(or_its_own(std::move(random))),
        group_(std::make_unique<Group>(std::move(group))),
        found_(group_.get()) {}
  Shared(GroupSource source, int64_t rank, std::shared_ptr<RandomState> random)
      : rank_(rank), source_(std::move(source)), random_(or_its_own(std::move(random))) {}

  int64_t rank() const { return rank_; }
  PlanCache& plans() { return plans_; }
  CallCache& calls() { return calls_; }
  RandomState& random() { return *random_; }
  /// Null before a deferred group is found.
  const Group* found() const { return found_.load(std::memory_order_acquire); }
  const Group& group() {
    if (const Group* known = found()) return *known;
    Group asked = ask_source();
    const std::lock_guard lock(mutex_);
    if (group_ == nullptr) group_ = std::make_unique<Group>(std::move(asked));
    found_.store(group_.get(), std::memory_order_release);
    return *group_;
  }

 private:
  Group ask_source() const {
    c10::intrusive_ptr<c10d::ProcessGroup> group = source_();
    DeviceMesh members = checked_members(group, {});
    HP_CHECK(group->getRank() == rank_, kFailedPrecondition, "this tensor was written by rank ", rank_,
             " but this process is rank ", group->getRank(), ": its share belongs to that rank");
    return {std::move(group), std::move(members)};
  }

  int64_t rank_;
  GroupSource source_;
  PlanCache plans_{kCachedPlans};
  CallCache calls_{kCachedCalls};
  std::shared_ptr<RandomState> random_;
  std::mutex mutex_;
  std::unique_ptr<Group> group_;
  std::atomic<const Group*> found_ = nullptr;
};

MeshCommunicator::MeshCommunicator(const c10::intrusive_ptr<c10d::ProcessGroup>& group, DeviceMesh mesh,
                                   std::vector<int64_t> members, std::shared_ptr<RandomState> random)
    : MeshCommunicator(
          [&] {
            DeviceMesh checked = checked_members(group, std::move(members));
            return std::make_shared<Shared>(Shared::Group{group, std::move(checked)}, std::move(random));
          }(),
          std::move(mesh)) {}

MeshCommunicator::MeshCommunicator(std::shared_ptr<Shared> shared, DeviceMesh mesh)
    : shared_(std::move(shared)), mesh_(std::move(mesh)) {
  if (const Shared::Group* group = shared_->found()) check_holds(group->members, mesh_);
}

MeshCommunicator MeshCommunicator::deferred(GroupSource source, int64_t rank, DeviceMesh mesh,
                                            std::shared_ptr<RandomState> random) {
  return {std::make_shared<Shared>(std::move(source), rank, std::move(random)), std::move(mesh)};
}

int64_t MeshCommunicator::rank() const { return shared_->rank(); }

c10d::ProcessGroup& MeshCommunicator::group() const {
  if (const Shared::Group* known = shared_->found()) return *known->group;
  const Shared::Group& asked = shared_->group();
  check_holds(asked.members, mesh_);
  return *asked.group;
}

bool MeshCommunicator::talks_over(const c10d::ProcessGroup* group) const {
  const Shared::Group* known = shared_->found();
  return known != nullptr && known->group.get() == group;
}

PlanCache& MeshCommunicator::plans() const { return shared_->plans(); }

CallCache& MeshCommunicator::calls() const { return shared_->calls(); }

RandomState& MeshCommunicator::random() const { return shared_->random(); }

MeshCommunicator MeshCommunicator::with_mesh(DeviceMesh mesh) const { return {shared_, std::move(mesh)}; }

MeshCommunicator MeshCommunicator::sub_mesh(const std::vector<std::string>& names) const {
  return with_mesh(mesh_.sub_mesh(names, rank()));
}

int64_t MeshCommunicator::group_rank(int64_t global_rank) const {
  const DeviceMesh& members = shared_->group().members;
  const auto position = members.position(global_rank);
  HP_CHECK(position.has_value(), kInvalidArgument, "rank ", global_rank, " of ", to_string(mesh_),
           " is not one of the process group's ranks ", tuple_text(members.ranks()));
  return *position;
}

std::vector<int64_t> MeshCommunicator::mesh_group_ranks() const {
  std::vector<int64_t> ranks;
  ranks.reserve(mesh_.ranks().size());
  for (const int64_t rank : mesh_.ranks()) ranks.push_back(group_rank(rank));
  return ranks;
}

}  // namespace hyper_parallel
