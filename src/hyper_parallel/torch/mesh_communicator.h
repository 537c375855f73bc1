#pragma once

// MeshCommunicator: a mesh whose ranks can talk to each other.
//
// One process group that holds all the mesh's ranks carries every plan: a message goes to a rank, whichever mesh dims
// it crosses, so no group per mesh dim is made. Ranks of the group that are not in the mesh take no part in anything.
//
// Also the home of the plans made for these meshes, of redistributions and of calls of operations, and of what they
// draw of random numbers, so that nothing is process-wide. Cheap to copy; copies and communicators of other meshes made
// from one another share group, plans and random numbers.

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hyper_parallel/mesh/device_mesh.h"
#include "hyper_parallel/operations/call_cache.h"
#include "hyper_parallel/redistribute/plan_cache.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel {

class RandomState;

class MeshCommunicator {
 public:
  /// `members[i]` is the global rank of the group's member i; empty means that the group numbers ranks as the job does.
  /// `random` is the random numbers' state, of its own if null: communicators of meshes that share ranks must share it,
  /// or they draw equal numbers.
  /// Throws kType for a null group, kInvalidArgument for members that are not as many as the group's or stand twice, or
  /// a mesh with a rank outside the group.
  MeshCommunicator(const c10::intrusive_ptr<c10d::ProcessGroup>& group, DeviceMesh mesh,
                   std::vector<int64_t> members = {}, std::shared_ptr<RandomState> random = nullptr);

  const DeviceMesh& mesh() const { return mesh_; }
  /// This process's global rank.
  int64_t rank() const;
  /// Whether this process lies in the mesh.
  bool is_member() const { return mesh_.contains(rank()); }

  /// Finds the process group when it is first needed; throws if there is none yet.
  using GroupSource = std::function<c10::intrusive_ptr<c10d::ProcessGroup>()>;

  /// A communicator for a tensor that was read from a file, perhaps before the job has a process group: everything but
  /// communication works with `rank`, which wrote the tensor. `source` is asked at first communication, without a lock
  /// held, for a group that numbers ranks as the job does. Then throws kFailedPrecondition unless this process has that
  /// rank in it, kInvalidArgument if the mesh has a rank outside it, and what `source` throws; a later call asks again.
  static MeshCommunicator deferred(GroupSource source, int64_t rank, DeviceMesh mesh,
                                   std::shared_ptr<RandomState> random = nullptr);

  /// The same group and plans for another mesh; throws kInvalidArgument if it has a rank outside the group.
  MeshCommunicator with_mesh(DeviceMesh mesh) const;
  /// The sub-mesh of the dims `names` through this process; throws as `DeviceMesh::sub_mesh`.
  MeshCommunicator sub_mesh(const std::vector<std::string>& names) const;

  c10d::ProcessGroup& group() const;
  /// The group-relative rank of a global rank that the group holds.
  int64_t group_rank(int64_t global_rank) const;
  /// The group-relative ranks of the mesh, in mesh order.
  std::vector<int64_t> mesh_group_ranks() const;

  PlanCache& plans() const;
  CallCache& calls() const;
  RandomState& random() const;

  /// True if this is the group in use: false for a deferred one that was not found yet.
  bool talks_over(const c10d::ProcessGroup* group) const;
  /// True if one was made from the other.
  bool shares_group(const MeshCommunicator& other) const { return shared_ == other.shared_; }

 private:
  class Shared;

  MeshCommunicator(std::shared_ptr<Shared> shared, DeviceMesh mesh);

  std::shared_ptr<Shared> shared_;
  DeviceMesh mesh_;
};

}  // namespace hyper_parallel
