// Operations that share out work on one replicated tensor: its gradient is summed over the ranks once.

#include "hyper_parallel/torch/gradient_sum.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "hyper_parallel/torch/counting_backend.h"
#include "hyper_parallel/torch/operations.h"
#include "tests/threaded/elementwise_support.h"

namespace hyper_parallel::test {
namespace {

/// A DTensor program on 2 ranks, with a count of the messages of its backward pass.
struct Counted {
  MeshCommunicator mesh;
  std::shared_ptr<const CommunicationCounters> counters;

  DTensor leaf(const at::Tensor& whole, Placement placement) const {
    return distribute(whole.clone().requires_grad_(), mesh, {placement});
  }
  DTensor constant(const at::Tensor& whole, Placement placement) const { return distribute(whole, mesh, {placement}); }
  int64_t messages_of_backward(const DTensor& loss) const {
    const int64_t before = counters->total().calls;
    loss.backward();
    return counters->total().calls - before;
  }
};

template <typename Body>
void on_counted_pair(const Body& body) {
  run_ranks(2, [&](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    body(Counted{MeshCommunicator(group, DeviceMesh({2})), counters});
  });
}

DTensor whole_sum(const DTensor& x) { return sum(x).redistribute({Replicate{}}); }

/// The loss of projections of `x` by columns, one for each of `weights`.
DTensor projected(const DTensor& x, const std::vector<DTensor>& weights) {
  DTensor loss = whole_sum(square(linear(x, weights.front())));
  for (size_t i = 1; i < weights.size(); ++i) loss = add(loss, whole_sum(square(linear(x, weights[i]))));
  return loss;
}

TEST(GradientSum, SeveralProjectionsOfOneTensor_ReduceItsGradientOnce) {
  on_counted_pair([](const Counted& counted) {
    const DTensor w = counted.constant(positive_values(), Shard(0));
    const DTensor once = counted.leaf(values(), Replicate{});
    const int64_t of_one = counted.messages_of_backward(projected(once, {w}));
    EXPECT_GT(of_one, 0);
    const DTensor x = counted.leaf(values(), Replicate{});
    EXPECT_EQ(counted.messages_of_backward(projected(x, {w, w, w})), of_one);
    EXPECT_TRUE(at::allclose(x.grad()->local(), once.grad()->local() * 3));
  });
}

TEST(GradientSum, OfATensorInsideTheGraph_IsThatOfOneProcess) {
  on_counted_pair([](const Counted& counted) {
    const at::Tensor plain = values().clone().requires_grad_();
    const at::Tensor inside = plain.mul(2);
    at::linear(inside, positive_values()).square().sum().add(at::linear(inside, values()).square().sum()).backward();
    const DTensor x = counted.leaf(values(), Replicate{});
    projected(mul(x, 2), {counted.constant(positive_values(), Shard(0)), counted.constant(values(), Shard(0))})
        .backward();
    EXPECT_TRUE(at::allclose(x.grad()->local(), plain.grad()));
  });
}

TEST(GradientSum, AWriteBetweenTwoProjections_PartsThem) {
  on_counted_pair([](const Counted& counted) {
    const at::Tensor plain = values().clone().requires_grad_();
    at::Tensor y = plain.mul(2);
    const at::Tensor before = at::linear(y, positive_values()).sum();
    y.mul_(3);
    before.add(at::linear(y, values()).sum()).backward();
    const DTensor x = counted.leaf(values(), Replicate{});
    const DTensor written = mul(x, 2);
    const DTensor first = whole_sum(linear(written, counted.constant(positive_values(), Shard(0))));
    mul_(written, 3);
    add(first, whole_sum(linear(written, counted.constant(values(), Shard(0))))).backward();
    EXPECT_TRUE(at::allclose(x.grad()->local(), plain.grad()));
  });
}

TEST(GradientSum, AParameterUsedInEveryStep_GetsEachStepsGradient) {
  on_counted_pair([](const Counted& counted) {
    const DTensor w = counted.constant(positive_values(), Shard(0));
    const DTensor x = counted.leaf(values(), Replicate{});
    const at::Tensor plain = values().clone().requires_grad_();
    for (int step = 0; step < 3; ++step) {
      projected(x, {w, w}).backward();
      at::linear(plain, positive_values()).square().sum().mul(2).backward();
      EXPECT_TRUE(at::allclose(x.grad()->local(), plain.grad())) << "step " << step;
      const at::NoGradGuard constant;
      x.local().mul_(0.5);  // what an optimizer does
      plain.mul_(0.5);
    }
  });
}

TEST(GradientSum, BackwardTwiceThroughARetainedGraph_AddsUp) {
  on_counted_pair([](const Counted& counted) {
    const DTensor w = counted.leaf(positive_values(), Shard(0));
    const DTensor x = counted.leaf(values(), Replicate{});
    const DTensor loss = projected(x, {w, w});
    loss.local().backward({}, /*retain_graph=*/true);
    const at::Tensor once = x.grad()->local().clone();
    loss.local().backward();
    EXPECT_TRUE(at::allclose(x.grad()->local(), once * 2));
  });
}

TEST(GradientSum, CopiesOfTheHandle_HaveItInCommon_AndDetachedTensorsHaveNot) {
  on_counted_pair([](const Counted& counted) {
    const DTensor x = counted.leaf(values(), Replicate{});
    const DTensor copy = x;
    EXPECT_EQ(&copy.gradient_sum(), &x.gradient_sum());
    EXPECT_NE(&x.detach().gradient_sum(), &x.gradient_sum());
  });
}

TEST(GradientSum, Enter_GivesTheSameNodeUntilTheTensorsPlaceInTheGraphChanges) {
  on_counted_pair([](const Counted& counted) {
    const DTensor x = counted.leaf(values(), Replicate{});
    const Layout shares = x.layout().with_placements({Partial(ReduceOp::kSum)});
    const Redistribution move{x.layout(), x.layout(), shares, Dims(x.shape())};
    GradientSum gradients;
    at::Tensor local = x.local().mul(2);
    const auto node = gradients.enter(local, move, counted.mesh).grad_fn();
    const at::Tensor again = gradients.enter(local, move, counted.mesh);
    EXPECT_EQ(again.grad_fn(), node);
    EXPECT_TRUE(again.is_alias_of(local));
    local.mul_(3);
    EXPECT_EQ(again._version(), local._version());
    EXPECT_NE(gradients.enter(local, move, counted.mesh).grad_fn(), node);
    const at::NoGradGuard constant;
    EXPECT_TRUE(gradients.enter(local, move, counted.mesh).is_same(local));
  });
}

}  // namespace
}  // namespace hyper_parallel::test
