// Trains a tensor-parallel MLP with torch::optim, and the same one on one process beside it: equal losses. One of two
// processes; start both:
//   for r in 0 1; do build/dev/examples/train_parallel $r /tmp/rendezvous & done; wait
//
// The first weight is cut by rows (its outputs), the second by columns (its inputs): each rank has half of the hidden
// units, and the only forward communication is the sum of the two halves' outputs.

#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "hyper_parallel/torch/dtensor.h"
#include "hyper_parallel/torch/elementwise.h"
#include "hyper_parallel/torch/gloo_group.h"
#include "hyper_parallel/torch/operations.h"

namespace {

using namespace hyper_parallel;

constexpr int64_t kRanks = 2;
constexpr int kSteps = 20;
const torch::optim::SGDOptions kOptions = torch::optim::SGDOptions(0.1).momentum(0.9);

struct Weights {
  at::Tensor up = at::randn({32, 16}) / 4;
  at::Tensor up_bias = at::randn({32});
  at::Tensor down = at::randn({8, 32}) / 6;
};

/// The losses of training on one process.
std::vector<double> train_alone(const Weights& weights, const at::Tensor& x, const at::Tensor& target) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& weight : {weights.up, weights.up_bias, weights.down}) {
    parameters.push_back(weight.clone().requires_grad_());
  }
  torch::optim::SGD optimizer(parameters, kOptions);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor hidden = at::relu(at::linear(x, parameters[0], parameters[1]));
    const at::Tensor loss = at::mse_loss(at::linear(hidden, parameters[2]), target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item().toDouble());
  }
  return losses;
}

/// The same with weights that lie on both ranks. The optimizer works on each rank's part.
std::vector<double> train_together(const MeshCommunicator& mesh, const Weights& weights, const at::Tensor& x,
                                   const at::Tensor& target) {
  const DTensor up = distribute(weights.up.clone().requires_grad_(), mesh, {Shard(0)});
  const DTensor up_bias = distribute(weights.up_bias.clone().requires_grad_(), mesh, {Shard(0)});
  const DTensor down = distribute(weights.down.clone().requires_grad_(), mesh, {Shard(1)});
  const DTensor input = distribute(x, mesh, {Replicate()});
  const DTensor wanted = distribute(target, mesh, {Replicate()});
  torch::optim::SGD optimizer({up.local(), up_bias.local(), down.local()}, kOptions);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const DTensor hidden = relu(linear(input, up, up_bias));                  // [Shard(1)]
    const DTensor output = linear(hidden, down).redistribute({Replicate()});  // from [Partial(sum)]
    const DTensor loss = mse_loss(output, wanted);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item().toDouble());
  }
  return losses;
}

int run(int rank, const char* rendezvous) {
  const MeshCommunicator mesh(create_gloo_group(create_file_store(rendezvous, kRanks), rank, kRanks),
                              DeviceMesh({kRanks}, {"tp"}));
  torch::manual_seed(0);  // every process makes the same weights and samples
  const Weights weights;
  const at::Tensor x = at::randn({64, 16});
  const at::Tensor target = at::randn({64, 8});
  const std::vector<double> alone = train_alone(weights, x, target);
  const std::vector<double> together = train_together(mesh, weights, x, target);
  double furthest = 0;
  for (int step = 0; step < kSteps; ++step) furthest = std::max(furthest, std::abs(alone[step] / together[step] - 1));
  if (rank == 0) {
    std::cout << "loss of step 1: " << together.front() << ", of step " << kSteps << ": " << together.back()
              << "; furthest from one process: " << furthest << " of it\n";
  }
  return furthest < 1e-4 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: train_parallel RANK RENDEZVOUS_FILE\n";
    return 2;
  }
  try {
    return run(std::atoi(argv[1]), argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "train_parallel: " << error.what() << "\n";
    return 1;
  }
}
