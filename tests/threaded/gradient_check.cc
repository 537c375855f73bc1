#include "tests/threaded/gradient_check.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace hyper_parallel::test {
namespace {

/// Finite differences of a smooth loss of size 1 in doubles: the error of central differences is about kStep^2.
constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;

double sum_over_ranks(const ThreadRank& self, double value) {
  std::vector<at::Tensor> tensors{at::tensor({value}, at::kDouble)};
  self.group->allreduce(tensors)->wait();
  return tensors[0].item<double>();
}

double total_loss(const ThreadRank& self, const Differentiable& collective, const at::Tensor& input) {
  const at::Tensor output = collective(input.detach().clone().requires_grad_());
  return sum_over_ranks(self, uneven_loss(self, output).item<double>());
}

/// The largest input of any rank; the loop over elements must be as long on all ranks.
int64_t most_elements(const ThreadRank& self, const at::Tensor& input) {
  std::vector<at::Tensor> tensors{at::tensor({input.numel()}, at::kLong)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  self.group->allreduce(tensors, options)->wait();
  return tensors[0].item<int64_t>();
}

at::Tensor moved(const at::Tensor& input, int64_t element, double step) {
  at::Tensor copy = input.detach().clone(at::MemoryFormat::Contiguous);
  copy.view(-1)[element] += step;
  return copy;
}

}  // namespace

at::Tensor uneven_loss(const ThreadRank& self, const at::Tensor& output) {
  const at::Tensor weights = at::arange(1, output.numel() + 1, output.options()).view(output.sizes()).sqrt();
  return (output.sin() * weights).sum() * (self.rank + 1);
}

void expect_gradient(const ThreadRank& self, const Differentiable& collective, const at::Tensor& input) {
  const at::Tensor leaf = input.detach().clone().requires_grad_();
  uneven_loss(self, collective(leaf)).backward();
  const at::Tensor gradient = leaf.grad().contiguous().view(-1);
  const int64_t elements = most_elements(self, input);
  for (int perturbed = 0; perturbed < self.size; ++perturbed) {
    for (int64_t element = 0; element < elements; ++element) {
      const bool moves = perturbed == self.rank && element < input.numel();
      const at::Tensor up = moves ? moved(input, element, kStep) : input;
      const at::Tensor down = moves ? moved(input, element, -kStep) : input;
      const double difference = total_loss(self, collective, up) - total_loss(self, collective, down);
      if (!moves) continue;
      EXPECT_NEAR(gradient[element].item<double>(), difference / (2 * kStep), kTolerance)
          << "rank " << self.rank << ", element " << element;
    }
  }
}

void expect_second_gradient(const ThreadRank& self, const Differentiable& collective, const at::Tensor& input) {
  const Differentiable gradient_of = [&](const at::Tensor& point) {
    const at::Tensor loss = uneven_loss(self, collective(point));
    return torch::autograd::grad({loss}, {point}, {}, true, true)[0];
  };
  expect_gradient(self, gradient_of, input);
}

}  // namespace hyper_parallel::test
