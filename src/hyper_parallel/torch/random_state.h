#pragma once

// Which random numbers a call draws: the seed and, for each mesh, how many calls have drawn on it.
//
// Every rank of a mesh comes to the same stream without a message for each call:
//
//   seed      that of `manual_seed`, the same on all ranks by the caller's word; without it torch's initial seed of the
//             mesh's first rank, which the ranks tell each other at their first draw on that mesh, so that processes
//             that were seeded unlike cannot draw unlike numbers
//   key       the seed mixed with the mesh's rank list: disjoint meshes, and meshes that share ranks, draw unlike
//             numbers. Shape and names do not count: a (2, 2) mesh and its flattened form go on where the other stopped
//   number    counts the draws on that rank list. A draw on a mesh touches no other mesh's number, so that ranks that
//             take part in one and not in the other stay in step
//
// torch's generators are never advanced: what a rank draws from them alone (data loading) changes nothing here.
//
// A forward pass that is computed again in a backward pass (activation checkpointing) would draw the next numbers
// instead of the same ones. Such a draw raises, unless the state of the forward pass is replayed.

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/mesh/device_mesh.h"
#include "hyper_parallel/random/random_stream.h"

namespace hyper_parallel {

class MeshCommunicator;

/// What one rank list draws next.
struct MeshDraws {
  /// Of `manual_seed` for this mesh alone; not mixed with the ranks.
  std::optional<uint64_t> own_seed;
  /// That the ranks agreed on because nobody gave one.
  std::optional<uint64_t> agreed_seed;
  uint64_t next = 0;
  friend bool operator==(const MeshDraws&, const MeshDraws&) = default;
};

/// The whole state of one process, as a value.
struct RandomPosition {
  std::optional<uint64_t> seed;
  std::map<std::vector<int64_t>, MeshDraws> meshes;  // by rank list
  friend bool operator==(const RandomPosition&, const RandomPosition&) = default;
};

/// "seed 42; (0, 1) next 3; (2, 3) own 7 next 0; (4, 5) agreed 9 next 1": what `parse_random_position` reads.
std::string to_string(const RandomPosition& position);
/// Throws kInvalidArgument for any other text.
RandomPosition parse_random_position(std::string_view text);

/// Shared by the communicators made from one another, beside their plans; safe to use from several threads.
class RandomState {
 public:
  /// Every mesh starts again, from `seed`. All ranks must call it alike.
  void manual_seed(uint64_t seed);
  /// This mesh alone starts again, from `seed` as it is: a mesh of other or more ranks that is seeded so draws the same
  /// numbers. All ranks of the mesh must call it alike.
  void manual_seed(uint64_t seed, const DeviceMesh& mesh);
  /// Every mesh starts again from the seeds that were given; those that were agreed on are forgotten. For a new process
  /// group, whose ranks may be other processes.
  void restart();

  RandomPosition position() const;
  void set_position(RandomPosition position);

  /// Goes back to `position` for a forward pass that is computed again; seeds that have been agreed on since are kept.
  /// Returns where the state stood, for `end_replay`. Replays may be nested.
  RandomPosition begin_replay(RandomPosition position);
  void end_replay(RandomPosition before);
  bool is_replaying() const;

  /// The next stream of the mesh, nothing if it has no seed yet.
  std::optional<RandomStream> peek(const DeviceMesh& mesh) const;
  /// The same, and the mesh goes on to the one behind.
  std::optional<RandomStream> take(const DeviceMesh& mesh);
  /// Gives a mesh without seed the one that its ranks agreed on.
  void set_agreed_seed(const DeviceMesh& mesh, uint64_t seed);

 private:
  mutable std::mutex mutex_;
  RandomPosition position_;
  int64_t replays_ = 0;
};

/// The stream for one random call of `operation` on a mesh that this rank is a member of; every rank of the mesh calls
/// it. `device` is where the tensor lies: the seed, if it has to be told, travels in that device's memory.
///
/// With HYPER_PARALLEL_CHECK=1 the ranks compare `describe()`, their seeds and their numbers, and all raise where they
/// differ (kFailedPrecondition). Throws kUnimplemented in a backward pass that computes a forward pass again without a
/// replay.
RandomStream draw(const MeshCommunicator& mesh, at::Device device, std::string_view operation,
                  const std::function<std::string()>& describe);

}  // namespace hyper_parallel
