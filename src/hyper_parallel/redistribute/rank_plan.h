#pragma once

// RankPlan: a plan as one rank runs it. Everything that the executor needs and nothing that it could decide.
//
// A rank's storage is flat: `StridedView`s count elements in the local buffer of the step's source or target. Between
// two ranks goes at most one message a step: its pieces end to end, in the same order on both sides, none of them
// empty.

#include <optional>
#include <vector>

#include "hyper_parallel/redistribute/plan.h"

namespace hyper_parallel {

/// Cells that stay on the rank: from its source buffer to its target buffer.
struct LocalCopy {
  StridedView from;
  StridedView to;
  friend bool operator==(const LocalCopy&, const LocalCopy&) = default;
};

/// One message. `pieces` lie in the source buffer of the sender, or the target buffer of the receiver.
struct Transfer {
  int64_t peer = 0;  // global rank
  int64_t numel = 0;
  std::vector<StridedView> pieces;

  /// True if the message can be sent from, or received into, the buffer itself.
  bool is_in_place() const { return pieces.size() == 1 && pieces.front().is_contiguous(); }
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// How a Reduce combines: own share and received messages, in the order of `sources`.
struct Combine {
  ReduceOp op;
  int64_t divisor = 1;           // of what is combined: the size of the averaged mesh dims
  std::vector<int64_t> sources;  // global ranks in mesh order, this rank among them
  friend bool operator==(const Combine&, const Combine&) = default;
};

struct RankStep {
  int64_t source_numel = 0;
  int64_t target_numel = 0;
  std::vector<LocalCopy> copies;
  std::vector<Transfer> sends;     // by ascending position of the peer in the mesh
  std::vector<Transfer> receives;  // likewise
  std::optional<Combine> combine;  // a Reduce; nothing for a Move
  friend bool operator==(const RankStep&, const RankStep&) = default;
};

struct RankPlan {
  std::vector<RankStep> steps;
  Dims target_shape;  // of the rank's local tensor at the end
  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

/// What `rank` does in one step; the rank lies in the step's meshes. O(messages of this rank), not O(ranks).
RankStep rank_step(const Step& step, int64_t rank);

/// All steps of `plan` for `rank`, and the shape of its target. A rank outside the mesh has no step and a local shape
/// of (0,).
RankPlan rank_plan(const Plan& plan, int64_t rank);

/// The sparse splits of a step as text, a line for each message: "send to 3: 24 elements [0:24]".
std::string to_string(const RankStep& step);

}  // namespace hyper_parallel
