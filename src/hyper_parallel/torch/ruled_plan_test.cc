#include "hyper_parallel/torch/ruled_plan.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/threaded/thread_backend.h"

namespace hyper_parallel::test {
namespace {

using Keywords = std::vector<Keyword>;

/// The key of a call on tensors of a mesh of one rank.
CallKey key_of(const char* name, const std::vector<Argument>& arguments, const Keywords& keywords = {}) {
  const Operation& operation = *find_operation(name);
  const BoundCall call = bind_arguments(operation, arguments, keywords);
  return call_key(operation, call, RuledOperands(operation, call.arguments));
}

template <typename Body>
void on_one_rank(const Body& body) {
  run_ranks(1, [&](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({1}));
    body(DTensor::from_local(at::zeros({2, 3, 4}), mesh, {Replicate{}}, std::vector<int64_t>{2, 3, 4}));
  });
}

Argument ints(std::initializer_list<int> values) { return Argument::list(std::vector<int>(values)); }

TEST(RuledPlan_Key, UnlikeCalls_HaveUnlikeKeys) {
  on_one_rank([](const DTensor& x) {
    const std::vector<CallKey> keys = {
        key_of("sum", {x}),
        key_of("sum", {x, ints({0})}),
        key_of("sum", {x, ints({1})}),
        key_of("sum", {x, ints({0, 1})}),
        key_of("sum", {x, ints({1, 0})}),
        key_of("sum", {x, ints({0})}, {{"keepdim", true}}),
        key_of("sum", {x, ints({0})}, {{"dtype", at::kDouble}}),
        key_of("sum", {x, ints({0})}, {{"dtype", at::kFloat}}),
        key_of("mean", {x, ints({0})}),
        key_of("transpose", {x, 0, 1}),
        key_of("transpose", {x, 1, 0}),
        key_of("view", {x, ints({6, 4})}),
        key_of("view", {x, ints({24})}),
        key_of("einsum", {"abc->ab", Argument(Argument::List{x})}),
        key_of("einsum", {"abc->ac", Argument(Argument::List{x})}),
        key_of("cat", {Argument(Argument::List{x, x}), 0}),
        key_of("cat", {Argument(Argument::List{x, x, x}), 0}),
        key_of("mul", {x, x}),
        key_of("add", {x, x}),
        key_of("scaled_dot_product_attention", {x, x, x}),
        key_of("scaled_dot_product_attention", {x, x, x}, {{"is_causal", true}}),
    };
    for (size_t i = 0; i < keys.size(); ++i) {
      for (size_t j = 0; j < i; ++j) EXPECT_FALSE(keys[i] == keys[j]) << "calls " << i << " and " << j;
    }
  });
}

TEST(RuledPlan_Key, EqualCalls_HaveEqualKeys) {
  on_one_rank([](const DTensor& x) {
    EXPECT_EQ(key_of("sum", {x, ints({0})}), key_of("sum", {x}, {{"dim", ints({0})}}));
    EXPECT_EQ(key_of("view", {x, ints({6, 4})}), key_of("view", {x, 6, 4}));
    EXPECT_EQ(key_of("softmax", {x, -1}), key_of("softmax", {x}, {{"dim", -1}}));
  });
}

TEST(RuledPlan_Key, NumbersOfElementwiseOperations_AreLeftOut) {
  on_one_rank([](const DTensor& x) {
    EXPECT_EQ(key_of("elu", {x, 1.0}), key_of("elu", {x, 2.0}));
    EXPECT_NE(key_of("elu", {x, 1.0}), key_of("celu", {x, 1.0}));
  });
}

TEST(RuledPlan_PlanOf, SecondCall_GetsTheSamePlan) {
  on_one_rank([](const DTensor& x) {
    const Operation& operation = *find_operation("softmax");
    const std::vector<Argument> arguments{x, 1};
    const BoundCall call = bind_arguments(operation, arguments, {});
    const RuledOperands operands(operation, call.arguments);
    const auto first = plan_of(operation, call, operands);
    EXPECT_EQ(plan_of(operation, call, operands), first);
    EXPECT_EQ(x.mesh().calls().size(), 1u);
    EXPECT_EQ(first->local_shapes, std::vector<Dims>({Dims{2, 3, 4}}));
  });
}

}  // namespace
}  // namespace hyper_parallel::test
