#pragma once

// HYPER_PARALLEL_CHECK=1 for saving: are the replicas of every box, and of every value, equal?

#include "hyper_parallel/checkpoint/exchange.h"
#include "hyper_parallel/checkpoint/planner.h"

namespace hyper_parallel {

/// One round in which the ranks compare checksums of all boxes that they hold. Plans, and reads every box, once more
/// than a save does. Throws what planning throws; kFailedPrecondition on every rank, naming the entry and two ranks, if
/// two ranks hold equal boxes of a tensor with unlike bytes, or unlike values of one name.
void check_replicas(Exchange& exchange, SavePlanner& planner);

}  // namespace hyper_parallel
