#pragma once

// Plan: what a redistribution does, as data.
//
// A plan is a short list of steps, each from one Distribution of the tensor to the next. There are two kinds of step:
//
//   Move      every rank comes to own `to`, taking each cell it does not hold from one fixed holder under `from`.
//             The holder shares the receiver's coordinate on every mesh dim that does not split `from`, so senders are
//             a fixed function of the mesh and a cell that the receiver holds is never sent.
//   Reduce    the Partial mesh dims `mesh_dims` are resolved: of each cell that a rank owns under `to` it takes the
//             share of every member of its group and combines these in mesh order. Replicas combine alike, or one of
//             them does for all, so that they are bit-equal.
//
// A plan follows from (source, target, shape) alone: equal inputs give equal plans on every rank. `rank_plan.h` says
// what a step means for one rank, `traffic.h` what a plan costs.

#include <string>
#include <variant>
#include <vector>

#include "hyper_parallel/geometry/distribution.h"

namespace hyper_parallel {

/// What a Move amounts to; follows from its distributions.
enum class MovePattern {
  kLocal,      // each rank takes a part of what it holds: no communication
  kAllGather,  // each rank's share becomes part of a bigger one
  kAllToAll,   // anything else
};

struct Move {
  MovePattern pattern;
  friend bool operator==(const Move&, const Move&) = default;
};

/// Sums and averages commute and are reduced together: then `op` is kAvg, and what is divided by is the size of the
/// averaged dims alone.
struct Reduce {
  ReduceOp op;
  std::vector<int64_t> mesh_dims;  // ascending
  friend bool operator==(const Reduce&, const Reduce&) = default;
};

struct Step {
  std::variant<Move, Reduce> action;
  Distribution from;
  Distribution to;
  friend bool operator==(const Step&, const Step&) = default;
};

struct Plan {
  Distribution source;
  Distribution target;
  std::vector<Step> steps;  // empty if every rank already holds what it needs, in place

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// True if the step needs no other rank.
bool is_local(const Step& step);

/// The number of steps that communicate.
int64_t rounds(const Plan& plan);

/// "all_to_all", "all_gather", "slice", "reduce_scatter(sum) over 'dp'"; "reduce_scatter(sum, avg) over 'dp', 'tp'"
/// where the ops of the dims differ.
std::string action_text(const Step& step);

/// The source, the target and a numbered line for each step. Many units are counted, not listed.
std::string to_string(const Plan& plan);

}  // namespace hyper_parallel
