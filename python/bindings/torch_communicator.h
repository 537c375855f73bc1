#pragma once

// MeshCommunicator in Python: made on first use of a mesh and kept on it.

#include <torch/csrc/utils/pybind.h>

#include "hyper_parallel/torch/mesh_communicator.h"

namespace hyper_parallel::bindings {

void bind_communicator(py::module_& module);

/// The communicator of a `hyper_parallel.DeviceMesh` over torch's default process group, made anew where that was made
/// anew. Throws kType for any other object, naming it as `what`, and kFailedPrecondition if torch.distributed is not
/// initialised.
MeshCommunicator communicator_of(py::handle mesh, std::string_view what);

/// The `hyper_parallel.DeviceMesh` that tensors on this mesh were made on, else a new one.
py::object mesh_of(const DeviceMesh& mesh);

/// A communicator that looks for torch's default process group when it first communicates.
MeshCommunicator deferred_communicator(int64_t rank, const DeviceMesh& mesh);

}  // namespace hyper_parallel::bindings
