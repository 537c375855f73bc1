#pragma once

// What a plan's messages add up to over the whole mesh, in elements.
//
// `traffic.h` knows what is received in O(ranks). Who sends it, in how many messages and through which buffers takes a
// look at every pair of sender and receiver: few pairs between interval layouts, ranks * ranks in an all-gather. So
// there is `max_messages`, which costs O(ranks), to decide by before `message_traffic` is called.

#include <cstdint>

#include "hyper_parallel/redistribute/plan.h"

namespace hyper_parallel {

struct MessageTraffic {
  int64_t messages = 0;
  int64_t max_sent = 0;        // by the busiest rank
  int64_t max_peak_extra = 0;  // on the busiest rank, counted as RankTraffic::peak_extra
  friend bool operator==(const MessageTraffic&, const MessageTraffic&) = default;
};

/// The sum and the maxima of `traffic(plan, rank)` over all ranks. O(ranks + max_messages(plan)).
MessageTraffic message_traffic(const Plan& plan);

/// A number that the plan's messages do not exceed. Exact for reductions and gathers without empty shares, near it
/// between interval layouts: ranks that own nothing between two that do are counted. Throws kInvalidArgument where it
/// leaves int64.
int64_t max_messages(const Plan& plan);

}  // namespace hyper_parallel
