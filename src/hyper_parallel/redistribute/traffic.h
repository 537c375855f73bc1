#pragma once

// What a plan costs, in elements: what is received and sent, what it takes in memory, and the least anybody could
// receive.

#include <cstdint>
#include <optional>

#include "hyper_parallel/redistribute/plan.h"
#include "hyper_parallel/redistribute/rank_plan.h"

namespace hyper_parallel {

/// One rank's part. Peak extra memory is what the rank holds at once beside its source and its target: results between
/// steps, and buffers for messages that cannot be sent from or received into place.
struct RankTraffic {
  int64_t sent = 0;
  int64_t received = 0;
  int64_t messages = 0;  // sent
  int64_t peak_extra = 0;
};
RankTraffic traffic(const RankPlan& plan);
RankTraffic traffic(const Plan& plan, int64_t rank);

/// How many shares of each cell a reduction brings together: the size of its group.
int64_t shares_of(const Step& step, const Reduce& reduce);

/// The whole mesh. Everything but `messages` and `peak_extra` costs O(ranks) to know.
struct MeshTraffic {
  int64_t total_received = 0;
  int64_t max_received = 0;
  int64_t lower_bound = 0;  // of total_received
  int64_t rounds = 0;
};
MeshTraffic mesh_traffic(const Plan& plan);

/// Cells that `rank` owns under the target and does not hold under the source: the least it must receive. Nothing where
/// the plan reduces, as a share is no cell of the value.
std::optional<int64_t> received_lower_bound(const Plan& plan, int64_t rank);

/// The least that all ranks together must receive. Without Partial the sum over ranks of what each owns and does not
/// hold. With P shares pending of each of N cells: (P - 1) * N to bring the shares of each cell together, and one for
/// each rank but the first that needs the cell: (P - 2) * N + cells owned under the target.
int64_t total_lower_bound(const Plan& plan);

}  // namespace hyper_parallel
