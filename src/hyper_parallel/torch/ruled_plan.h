#pragma once

// The plan of a ruled call: made of its rule and its operands' layouts, or found among those of earlier calls.

#include <memory>

#include "hyper_parallel/operations/call_cache.h"
#include "hyper_parallel/torch/ruled_operands.h"

namespace hyper_parallel {

/// What the plan follows from.
CallKey call_key(const Operation& operation, const BoundCall& call, const RuledOperands& operands);

/// Throws as the operation's rule and `propagate`, on every rank.
std::shared_ptr<const CallPlan> plan_of(const Operation& operation, const BoundCall& call,
                                        const RuledOperands& operands);

}  // namespace hyper_parallel
