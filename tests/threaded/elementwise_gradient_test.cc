// Gradients that cross ranks, and requires_grad as a fact of all ranks. Every loss differs between the ranks; rank r's
// counts r + 1 times, 10 times in all on 4 ranks.

#include <gtest/gtest.h>

#include "tests/threaded/elementwise_support.h"

namespace hyper_parallel::test {
namespace {

at::Tensor leaf(const at::Tensor& tensor) { return at::Tensor(tensor.clone()).requires_grad_(); }
at::Tensor weights() { return at::arange(1, 25, at::kFloat).reshape({6, 4}); }

void backward_on_all_ranks(const DTensor& result) {
  (result.full_tensor() * weights() * (result.mesh().rank() + 1)).sum().backward();
}
void backward_in_one_process(const at::Tensor& result) { (result * weights() * 10).sum().backward(); }

void expect_close(const at::Tensor& given, const at::Tensor& expected, const std::string& what) {
  ASSERT_TRUE(given.defined()) << what;
  ASSERT_EQ(given.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(at::allclose(given, expected, 1e-5, 1e-5)) << what << " is\n" << given << "\nbut must be\n" << expected;
}

struct Formula {
  std::string name;
  DTensor (*distributed)(const DTensor&, const Argument&);
  at::Tensor (*plain)(const at::Tensor&, const at::Tensor&);
};

std::vector<Formula> formulas() {
  return {
      {"x + y", [](auto& x, auto& y) { return x + y; }, [](auto& x, auto& y) { return x + y; }},
      {"x - y", [](auto& x, auto& y) { return x - y; }, [](auto& x, auto& y) { return x - y; }},
      {"x * y", [](auto& x, auto& y) { return x * y; }, [](auto& x, auto& y) { return x * y; }},
      {"x / y", [](auto& x, auto& y) { return x / y; }, [](auto& x, auto& y) { return x / y; }},
      {"y - x", [](auto& x, auto& y) { return rsub(x, y); }, [](auto& x, auto& y) { return y - x; }},
      {"y / x", [](auto& x, auto& y) { return rdiv(x, y); }, [](auto& x, auto& y) { return y / x; }},
      {"x ** y", [](auto& x, auto& y) { return pow(x, y); }, [](auto& x, auto& y) { return at::pow(x, y); }},
      {"y ** x", [](auto& x, auto& y) { return rpow(x, y); }, [](auto& x, auto& y) { return at::pow(y, x); }},
      {"x + 3 y", [](auto& x, auto& y) { return add(x, y, 3); }, [](auto& x, auto& y) { return at::add(x, y, 3); }},
      {"lerp", [](auto& x, auto& y) { return lerp(x, y, 0.25); },
       [](auto& x, auto& y) { return at::lerp(x, y, 0.25); }},
      {"addcmul", [](auto& x, auto& y) { return addcmul(x, x, y, 2); },
       [](auto& x, auto& y) { return at::addcmul(x, x, y, 2); }},
      {"in place", [](auto& x, auto& y) { return mul_(x * 2, y); }, [](auto& x, auto& y) { return (x * 2).mul_(y); }},
  };
}

TEST(ElementwiseGradient_RaggedOperands, LieAsTheOperands) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const at::Tensor a = positive_values();
    const at::Tensor b = at::cos(values()) + 2;
    for (const Formula& formula : formulas()) {
      const DTensor x = distribute(leaf(a), mesh, ragged({1, 2, 0, 3}));
      const DTensor y = distribute(leaf(b), mesh, ragged({4, 8, 0, 12}, {0, 1}));
      backward_on_all_ranks(formula.distributed(x, y));
      const at::Tensor plain_x = leaf(a);
      const at::Tensor plain_y = leaf(b);
      backward_in_one_process(formula.plain(plain_x, plain_y));
      EXPECT_EQ(y.grad()->placements(), y.placements());
      expect_close(x.grad()->full_tensor(), plain_x.grad(), formula.name + ": gradient of x");
      expect_close(y.grad()->full_tensor(), plain_y.grad(), formula.name + ": gradient of y");
    }
  });
}

TEST(ElementwiseGradient_ReplicateOperand, IsGatheredAndEqualOnAllRanks) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const at::Tensor a = positive_values();
    const at::Tensor b = at::cos(values()) + 2;
    for (const auto& placements : ragged_layouts()) {
      for (const Formula& formula : formulas()) {
        const DTensor x = distribute(leaf(a), mesh, placements);
        const DTensor y = distribute(leaf(b), mesh, replicated());
        backward_on_all_ranks(formula.distributed(x, y));
        const at::Tensor plain_x = leaf(a);
        const at::Tensor plain_y = leaf(b);
        backward_in_one_process(formula.plain(plain_x, plain_y));
        EXPECT_EQ(y.grad()->placements(), replicated());
        expect_close(x.grad()->full_tensor(), plain_x.grad(), formula.name + ": gradient of x");
        expect_close(y.grad()->local(), plain_y.grad(), formula.name + ": gradient of y");
      }
    }
  });
}

TEST(ElementwiseGradient_OneElement, IsSummedOverAllRanks) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const at::Tensor a = positive_values();
    for (const auto& placements :
         {ragged({1, 2, 0, 3}), ragged({0, 6, 0, 0}), std::vector<Placement>{Shard(0)}, replicated()}) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1}}) {
        for (const Formula& formula : formulas()) {
          const at::Tensor plain_x = leaf(a);
          const at::Tensor plain_y = leaf(at::full(shape, 1.5f));
          backward_in_one_process(formula.plain(plain_x, plain_y));
          const std::string what =
              str_cat(formula.name, " with ", tuple_text(shape), " beside ", to_string(placements));

          const DTensor x = distribute(leaf(a), mesh, placements);
          const at::Tensor element = leaf(at::full(shape, 1.5f));
          backward_on_all_ranks(formula.distributed(x, element));
          expect_close(x.grad()->full_tensor(), plain_x.grad(), what + ": gradient of x");
          // With all of x on every rank nothing is summed inside; leaving has summed the losses already.
          expect_close(element.grad(), plain_y.grad(), what + ": gradient of the element");

          const DTensor everywhere = distribute(leaf(at::full(shape, 1.5f)), mesh, replicated());
          backward_on_all_ranks(formula.distributed(distribute(a, mesh, placements), everywhere));
          expect_close(everywhere.grad()->local(), plain_y.grad(), what + ": gradient of the DTensor of one element");
        }
      }
    }
  });
}

TEST(ElementwiseGradient_OneElement, OnTwoMeshDims_IsSummedOverTheRaggedOneAlone) {
  run_ranks(4, [](const ThreadRank& rank) {
    const MeshCommunicator grid(rank.group, DeviceMesh({2, 2}, {"dp", "tp"}));
    const at::Tensor a = positive_values();
    const DTensor x = distribute(a, grid, {RaggedShard({0}, {1, 2}), Replicate{}});
    const at::Tensor element = leaf(at::full({1}, 1.5f));
    backward_on_all_ranks(x * element);
    const at::Tensor plain = leaf(at::full({1}, 1.5f));
    backward_in_one_process(a * plain);
    expect_close(element.grad(), plain.grad(), "gradient of the element");
  });
}

TEST(ElementwiseGradient_OutsideTheMesh, NoRankEntersTheBackwardCollective) {
  run_ranks(3, [](const ThreadRank& rank) {
    const MeshCommunicator some(rank.group, DeviceMesh({2}, {"dp"}, {2, 0}));
    const DTensor x = distribute(leaf(positive_values()), some, ragged({1, 2}));
    const at::Tensor element = leaf(at::full({1}, 1.5f));
    const DTensor y = distribute(leaf(values()), some, replicated());
    const DTensor result = x * element + y;
    EXPECT_TRUE(result.requires_grad());
    if (some.is_member()) {
      result.full_tensor().sum().backward();
      // Two ranks' losses.
      expect_close(element.grad(), (2 * positive_values().sum()).reshape({1}), "gradient of the element");
      expect_close(y.grad()->local(), at::full({6, 4}, 2.0f), "gradient of y");
    } else {
      result.local().sum().backward();
      expect_close(element.grad(), at::zeros({1}), "gradient of the element outside");
    }
  });
}

// Case 22, 23: what requires grad does so on every rank.
TEST(Case22_ElementwiseRequiresGrad, IsTheSameOnEveryRank_EmptySharesIncluded) {
  on_mesh(3, [](const MeshCommunicator& mesh) {
    const at::Tensor whole = at::arange(1, 7, at::kFloat);
    const DTensor x = distribute(leaf(whole), mesh, ragged({2, 0, 4}));
    const DTensor y = distribute(whole, mesh, ragged({2, 0, 4}));
    EXPECT_TRUE((x + y).requires_grad());
    EXPECT_TRUE((y + x).requires_grad());
    EXPECT_FALSE((y + y).requires_grad());
    EXPECT_TRUE((y * leaf(at::ones({}))).requires_grad());
    EXPECT_FALSE(gt(x, 0).requires_grad());
    EXPECT_FALSE(isnan(x).requires_grad());
    EXPECT_FALSE(zeros_like(x).requires_grad());
    EXPECT_FALSE(call("detach", {x}).front().requires_grad());
    EXPECT_TRUE(to(x, at::kDouble).requires_grad());
    EXPECT_FALSE(to(x, at::kLong).requires_grad());
    // The weights of the ranks' losses are 1, 2, 3.
    (x.full_tensor() * at::arange(1, 7, at::kFloat) * (mesh.rank() + 1)).sum().backward();
    expect_close(x.grad()->full_tensor(), 6 * at::arange(1, 7, at::kFloat), "gradient");
  });
}

TEST(ElementwiseGradient_InPlaceOnALeaf, RaisesAsTorchOnEveryRank) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(leaf(values()), mesh, ragged({1, 2, 0, 3}));
    EXPECT_EQ(torch_error([&] { add_(x, 1); }), torch_error([&] { leaf(values()).add_(1); }));
    EXPECT_EQ(torch_error([&] { zero_(x); }), torch_error([&] { leaf(values()).zero_(); }));
    expect_whole(x, values(), "x");
  });
}

}  // namespace
}  // namespace hyper_parallel::test
