#pragma once

// The planner: source and target layout to Plan. Pure: no I/O, no communication, no state.

#include "hyper_parallel/redistribute/plan.h"

namespace hyper_parallel {

/// The plan that takes a tensor of `shape` from `source` to `target`.
///
/// Without Partial it is at most one Move, which receives exactly the cells that a rank needs and does not hold. A
/// Partial is reduced onto the ranks for which the bytes received by that and by the Move behind it are fewest, then
/// moved; of equal bytes the fewest rounds decide. Replicas reduce what the target wants of them, or share the work and
/// gather afterwards where that receives less. Partial dims whose ops commute (sum and avg do) are reduced together,
/// the others innermost first.
///
/// Throws kInvalidArgument: a layout that does not fit `shape`; a Partial in the target that is not the same Partial in
/// the source; meshes over different sets of ranks; different meshes where a layout is ragged; a pending reduction that
/// an outer one of another op would have to overtake. kOutOfRange: a Shard dim beyond the shape.
Plan plan_redistribution(const Layout& source, const Layout& target, const Dims& shape);

/// The same between distributions that no user may ask for (a scatter from one holder, the gradient of a ragged
/// replica).
Plan plan_distribution(const Distribution& source, const Distribution& target);

}  // namespace hyper_parallel
