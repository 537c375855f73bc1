#pragma once

// The numbers of `hyper-parallel plan`: a plan, what it costs the mesh and, if asked, one of its ranks. In elements;
// the command shows bytes.

#include <optional>

#include "hyper_parallel/redistribute/message_traffic.h"
#include "hyper_parallel/redistribute/rank_plan.h"
#include "hyper_parallel/redistribute/traffic.h"
#include "hyper_parallel/tools/plan_request.h"

namespace hyper_parallel {

struct RankReport {
  int64_t rank;
  Dims coordinate;  // in the source's mesh
  Dims source_shape;
  RankPlan plan;
  RankTraffic traffic;
  std::optional<int64_t> lower_bound;  // nothing where the plan reduces
};

struct PlanReport {
  Plan plan;
  ElementType dtype;
  int64_t elements;
  MeshTraffic mesh;
  int64_t max_messages;                    // the messages are no more than these
  std::optional<MessageTraffic> messages;  // nothing where these are too many to look at
  std::optional<RankReport> rank;
};

/// Up to so many messages are looked at one by one: about two seconds of work.
inline constexpr int64_t kMaxListedMessages = 5'000'000;

/// Plans and counts. O(ranks + min(messages, max_listed)). Throws as `plan_redistribution`, and kInvalidArgument where
/// a count leaves int64.
PlanReport make_plan_report(const PlanRequest& request, int64_t max_listed = kMaxListedMessages);

/// The bytes of so many elements of the report's dtype. Throws kInvalidArgument where int64 does not count them.
int64_t bytes_of(const PlanReport& report, int64_t elements);

}  // namespace hyper_parallel
