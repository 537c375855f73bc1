#pragma once

// Layouts as the truth sees them: only their plain values are read.

#include "hyper_parallel/layout/layout.h"
#include "tests/reference/truth.h"

namespace hyper_parallel::reference {

/// The scheme of `layout` for a tensor of `shape`. Negative Shard dims count from the tensor's last dim.
Scheme scheme_of(const Layout& layout, const std::vector<int64_t>& shape);

}  // namespace hyper_parallel::reference
