// The operations on normal layouts as C++ functions: values, placements and gradients beside plain torch. The whole
// table is compared in Python (tests/python/distributed/test_operations_drawn.py).

#include "hyper_parallel/torch/operations.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "hyper_parallel/torch/operation_call.h"
#include "hyper_parallel/torch/random_state.h"
#include "tests/threaded/elementwise_support.h"

namespace hyper_parallel::test {
namespace {

using enum ErrorCode;

// Six rows of four.
const std::vector<std::vector<Placement>> kLayouts = {{Replicate()}, {Shard(0)}, {Shard(1)}};

void expect_close(const at::Tensor& given, const at::Tensor& expected, const char* what) {
  EXPECT_TRUE(at::allclose(given, expected, 1e-5, 1e-6)) << what << " is\n" << given << "\nbut must be\n" << expected;
}

DTensor reduced(const DTensor& x) { return x.redistribute({Replicate()}); }

TEST(Operations, OfOneOperand_AreThoseOfTheWhole_OnEveryLayout) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const at::Tensor whole = values();
    for (const auto& placements : kLayouts) {
      const DTensor x = distribute(whole, mesh, placements);
      expect_whole(sum(x), whole.sum(), "sum");
      expect_whole(sum(x, {1}), whole.sum(1), "sum of rows");
      expect_whole(mean(x, {0}), whole.mean(0), "mean of columns");
      expect_whole(amax(x, {0}), whole.amax(0), "amax");
      expect_whole(amin(x, {1}), whole.amin(1), "amin");
      expect_whole(softmax(x, 1), whole.softmax(1), "softmax");
      expect_whole(log_softmax(x, 0), whole.log_softmax(0), "log_softmax");
      expect_whole(layer_norm(x, {4}), at::layer_norm(whole, {4}), "layer_norm");
      expect_whole(view(x, {2, 3, 4}), whole.view({2, 3, 4}), "view");
      expect_whole(reshape(x, {24}), whole.reshape({24}), "reshape");
      expect_whole(permute(x, {1, 0}), whole.t(), "permute");
      expect_whole(transpose(x, 0, 1), whole.t(), "transpose");
      expect_whole(expand(unsqueeze(x, 0), {3, 6, 4}), whole.expand({3, 6, 4}), "expand");
      expect_whole(narrow(x, 0, 1, 3), whole.narrow(0, 1, 3), "narrow");
      expect_whole(cat({x, x}, 1), at::cat({whole, whole}, 1), "cat");
      expect_whole(stack({x, x}), at::stack({whole, whole}), "stack");
      const std::vector<DTensor> pieces = split(x, 4);
      ASSERT_EQ(pieces.size(), 2);
      expect_whole(pieces[1], whole.narrow(0, 4, 2), "split");
    }
  });
}

TEST(Operations, OfSeveralOperands_AreThoseOfTheWholes_OnEveryPairOfLayouts) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const at::Tensor a = values();
    const at::Tensor b = positive_values();
    const at::Tensor index = at::arange(5, at::kLong);
    for (const auto& left : kLayouts) {
      for (const auto& right : kLayouts) {
        const DTensor x = distribute(a, mesh, left);
        const DTensor w = distribute(b, mesh, right);
        expect_whole(linear(x, w, distribute(at::ones({6}), mesh, {Replicate()})), at::linear(a, b, at::ones({6})),
                     "linear");
        expect_whole(matmul(x, transpose(w, 0, 1)), at::matmul(a, b.t()), "matmul");
        expect_whole(einsum("ij,kj->ki", {x, w}), at::einsum("ij,kj->ki", {a, b}), "einsum");
        expect_whole(mse_loss(x, w), at::mse_loss(a, b), "mse_loss");
        expect_whole(scaled_dot_product_attention(x, w, w), at::scaled_dot_product_attention(a, b, b), "attention");
      }
      const DTensor target = distribute(at::arange(6, at::kLong).remainder(4), mesh, {Shard(0)});
      expect_whole(cross_entropy_loss(distribute(a, mesh, left), target),
                   at::cross_entropy_loss(a, at::arange(6, at::kLong).remainder(4)), "cross_entropy_loss");
      expect_whole(embedding(distribute(a, mesh, left), distribute(index, mesh, {Shard(0)})), at::embedding(a, index),
                   "embedding");
    }
  });
}

TEST(Operations_Linear, RowAndColumnParallel_LieAsTensorParallelModulesNeed) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, {Replicate()});
    const DTensor columns = linear(x, distribute(positive_values(), mesh, {Shard(0)}));
    EXPECT_EQ(columns.placements(), std::vector<Placement>{Shard(1)});
    const DTensor rows = linear(columns, distribute(at::ones({3, 6}), mesh, {Shard(1)}));
    EXPECT_EQ(rows.placements(), std::vector<Placement>{Partial(ReduceOp::kSum)});
    expect_whole(rows, at::linear(at::linear(values(), positive_values()), at::ones({3, 6})), "both");
  });
}

TEST(Operations_Gradients, OfAChain_AreThoseOfOneProcess) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const auto loss_of = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
      return at::linear(x, w, b).softmax(-1).square().mean();
    };
    const at::Tensor plain_x = values().clone().requires_grad_();
    const at::Tensor plain_w = positive_values().clone().requires_grad_();
    const at::Tensor plain_b = at::ones({6}).requires_grad_();
    loss_of(plain_x, plain_w, plain_b).backward();
    for (const auto& left : kLayouts) {
      for (const auto& right : kLayouts) {
        const DTensor x = distribute(values().clone().requires_grad_(), mesh, left);
        const DTensor w = distribute(positive_values().clone().requires_grad_(), mesh, right);
        const DTensor b = distribute(at::ones({6}).requires_grad_(), mesh, {Shard(0)});
        mean(square(softmax(reduced(linear(x, w, b)), -1))).backward();
        expect_close(x.grad()->full_tensor(), plain_x.grad(), "gradient of x");
        expect_close(w.grad()->full_tensor(), plain_w.grad(), "gradient of w");
        expect_close(b.grad()->full_tensor(), plain_b.grad(), "gradient of b");
        EXPECT_EQ(w.grad()->placements(), w.placements());
      }
    }
  });
}

TEST(Operations_Gradients, OfAnExtremeThatManyCellsHave_AreSharedAmongAllOfThem) {
  on_mesh(3, [](const MeshCommunicator& mesh) {
    const at::Tensor whole = values().sign().requires_grad_();
    const at::Tensor expected = torch::autograd::grad({whole.amax(0).sum()}, {whole}).front();
    for (const auto& placements : kLayouts) {
      const DTensor x = distribute(whole.detach(), mesh, placements).requires_grad_();
      sum(reduced(view(clone(amax(x, {0})), {2, 2}))).backward();
      expect_close(x.grad()->full_tensor(), expected, "gradient of amax");
    }
  });
}

TEST(Operations_Random, InPlace_IsThatOfTheWhole_OnEveryLayout) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    std::vector<std::vector<Placement>> layouts = kLayouts;
    layouts.push_back(ragged({1, 2}));
    for (const char* name : {"uniform_", "normal_"}) {
      std::optional<at::Tensor> first;
      for (const auto& placements : layouts) {
        const DTensor x = distribute(values(), mesh, placements);
        mesh.random().manual_seed(3);
        const DTensor written = call(name, {x, 2, 5}).front();
        EXPECT_TRUE(written.local().is_same(x.local()));
        if (!first) first = x.full_tensor();
        EXPECT_TRUE(at::equal(x.full_tensor(), *first)) << name;
      }
      EXPECT_FALSE(at::equal(*first, values()));
    }
  });
}

TEST(Operations_Views, ShareStorageWhereNothingMoves_AndRefuseWritesWhereItDid) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, {Shard(0)});
    fill_(view(x, {2, 3, 4}), 7);
    expect_whole(x, at::full({6, 4}, 7.0f), "written through the view");
    const DTensor moved = narrow(x, 0, 0, 3);
    expect_error(kInvalidArgument, "would write to a view of a tensor that was redistributed for it",
                 [&] { fill_(moved, 1); });
    fill_(clone(moved), 1);
  });
}

TEST(OperationsRefusal, PendingReductions_ThatDoNotCommute_AreNamed) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, {Shard(1)});
    const DTensor pending = sum(x, {1});
    expect_error(kInvalidArgument,
                 "operation 'softmax' with these arguments does not commute with the pending reduction of argument "
                 "'self', whose placements are [Partial(sum)]; redistribute it to Replicate() first",
                 [&] { softmax(pending, 0); });
    expect_whole(sum(pending), values().sum(), "a sum of shares");
  });
}

}  // namespace
}  // namespace hyper_parallel::test
