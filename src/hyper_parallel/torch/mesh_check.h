#pragma once

// HYPER_PARALLEL_CHECK=1 for what a whole mesh does: the ranks of the mesh, and only these, compare before they
// communicate.

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/torch/mesh_communicator.h"

namespace hyper_parallel {

/// Runs `validate`, this rank's own checks. With the check on, the ranks of the mesh also compare `describe()`, and a
/// fault of one raises on all; a rank outside the mesh only validates. Throws what `validate` throws, else as
/// `validate_together`.
void check_mesh_together(const MeshCommunicator& mesh, std::string_view operation,
                         const std::function<void()>& validate, const std::function<std::string()>& describe);

/// The facts of a tensor of which this rank has `local` that must be the same on every rank, as one text.
std::string describe(const Layout& layout, std::span<const int64_t> shape, const at::Tensor& local);

}  // namespace hyper_parallel
