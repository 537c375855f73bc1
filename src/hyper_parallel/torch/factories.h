#pragma once

// New DTensors: constant and random ones, of which each rank makes its own part alone.
//
// Constants communicate nothing. A random tensor's elements depend on their positions in the whole tensor and on
// (seed, mesh, number of the call) alone: replicas are equal, the whole is the same however it is cut, and two calls
// draw unlike numbers. `random_state.h` says where the seed comes from; the first call on a mesh tells it to the ranks
// if nobody gave one.
//
// Every function takes the placements of a normal layout, as torch's factories do: Shard and Replicate. The rest raise
// on every rank, before anything is made:
//
//   RaggedShard    kUnimplemented: make a normal tensor and redistribute it
//   Partial        kInvalidArgument: a new tensor is no share of a pending reduction; shares of ones would add up to
//                  the number of ranks
//
// and kInvalidArgument for a shape with a negative size or more elements than int64 counts, placements that are not as
// many as mesh dims, or requires_grad with an integer dtype; kOutOfRange for a Shard dim; kType for a random dtype that
// is not floating point. With HYPER_PARALLEL_CHECK=1 the ranks compare what they make.
//
// `options`: dtype (torch's default dtype if none), device (the CPU if none) and requires_grad count. The result is a
// leaf. A rank outside the mesh gets a tensor without elements.
//
// Example: randn({1024, 1024}, mesh, {Shard(0)}, at::dtype(at::kBFloat16).requires_grad(true))

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <vector>

#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel {

DTensor zeros(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
              const at::TensorOptions& options = {});
DTensor ones(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
             const at::TensorOptions& options = {});
/// Of whatever values the memory holds; replicas differ until it is written.
DTensor empty(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
              const at::TensorOptions& options = {});
/// Without a dtype that of the value, as in torch: an integer gives Long.
DTensor full(std::vector<int64_t> shape, const at::Scalar& value, const MeshCommunicator& mesh,
             std::vector<Placement> placements, const at::TensorOptions& options = {});

/// Uniform in [0, 1).
DTensor rand(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
             const at::TensorOptions& options = {});
/// Standard normal.
DTensor randn(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
              const at::TensorOptions& options = {});

/// The same laid out as `like`, of its shape, and of its dtype unless `options` say another. Throws as above for ragged
/// and Partial tensors.
DTensor rand_like(const DTensor& like, const at::TensorOptions& options = {});
DTensor randn_like(const DTensor& like, const at::TensorOptions& options = {});

}  // namespace hyper_parallel
