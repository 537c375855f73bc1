#pragma once

// GradientSum: one reduction for the gradients of all operations that share out work on one tensor.
//
// Where a replicated tensor meets sharded ones, each rank has a gradient from its own share of the work, and the
// tensor's gradient is their sum over the ranks. Operations that take the same tensor so (the query, key and value
// projections of one input) enter by one node of the graph: their gradients are added up on each rank, as autograd adds
// up what comes to one node, and reduced once.
//
//   x ── reduce ──┬── linear(·, query)          backward: (g_query + g_key + g_value), then one all-reduce
//   (one node)    ├── linear(·, key)
//                 └── linear(·, value)
//
// Which operations share a node follows from the program alone, never from what memory is still in use: all ranks run
// the same reductions in the same order.

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>

#include "hyper_parallel/torch/redistribute_local.h"

namespace hyper_parallel {

class GradientSum {
 public:
  GradientSum();
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  /// `redistribute_local` of a tensor that stays where it is: source and target are equal. The result has the node of
  /// the graph that the last call gave, if the tensor has kept its place in the graph and the redistribution is equal.
  /// That node keeps nothing alive that the tensor does not. Safe to call from several threads.
  at::Tensor enter(const at::Tensor& local, const Redistribution& redistribution, const MeshCommunicator& communicator);

 private:
  struct Entrance;

  std::mutex mutex_;
  std::unique_ptr<const Entrance> last_;
};

}  // namespace hyper_parallel
