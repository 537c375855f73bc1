#include "hyper_parallel/torch/gradient_sum.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

namespace graph = torch::autograd::impl;

/// `local`, as the output of `edge` of the graph.
at::Tensor behind(const torch::autograd::Edge& edge, const at::Tensor& local) {
  at::Tensor entered = local.detach();
  graph::set_gradient_edge(entered, edge);
  return entered;
}

}  // namespace

/// An edge that takes the gradients of another one, and the redistribution that it runs backwards.
struct GradientSum::Entrance {
  Redistribution redistribution;
  torch::autograd::Edge from;
  torch::autograd::Edge edge;
};

GradientSum::GradientSum() = default;
GradientSum::~GradientSum() = default;

at::Tensor GradientSum::enter(const at::Tensor& local, const Redistribution& redistribution,
                              const MeshCommunicator& communicator) {
  HP_DCHECK(redistribution.source == redistribution.target);
  const bool in_graph = at::GradMode::is_enabled() && local.requires_grad() && !local._fw_grad(/*level=*/0).defined();
  if (!in_graph) return redistribute_local(local, redistribution, communicator);
  const torch::autograd::Edge from = graph::gradient_edge(local);
  const std::lock_guard lock(mutex_);
  if (last_ && last_->from == from && last_->redistribution == redistribution) return behind(last_->edge, local);
  at::Tensor entered = redistribute_local(local, redistribution, communicator);
  last_ = std::make_unique<const Entrance>(redistribution, from, graph::gradient_edge(entered));
  return entered;
}

}  // namespace hyper_parallel
