#pragma once

// The ragged placement that gives one rank everything: how a source rank holds a tensor before it is scattered, and how
// a single row of a sharded tensor lies.

#include <cstdint>

#include "hyper_parallel/placement/placement.h"

namespace hyper_parallel {

/// RaggedShard((0,), one unit on `owner` of `ranks`); 0 <= owner < ranks. It fits every shape of at least one dim.
/// Example: one_holder(1, 3) == RaggedShard({0}, {0, 1, 0}).
RaggedShard one_holder(int64_t owner, int64_t ranks);

}  // namespace hyper_parallel
