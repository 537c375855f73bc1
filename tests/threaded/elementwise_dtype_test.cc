// Result dtypes that are not the operands', and arguments that must not be mixed up between calls.

#include <gtest/gtest.h>

#include "tests/threaded/elementwise_support.h"

namespace hyper_parallel::test {
namespace {

TEST(Case11d_Elementwise_ArgumentsOfOneOperation, AreNeverMixedUp) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    for (const std::vector<Placement>& placements : {std::vector<Placement>{Shard(0)}, ragged({1, 3})}) {
      const at::Tensor whole = at::tensor({1.0f, 2.0f, 3.0f, 4.0f});
      const DTensor d = distribute(whole, mesh, placements);
      expect_whole(pow(d, 2), at::tensor({1.0f, 4.0f, 9.0f, 16.0f}), "d ** 2");
      expect_whole(pow(d, 3), at::tensor({1.0f, 8.0f, 27.0f, 64.0f}), "d ** 3");
      expect_whole(pow(d, 0.5), whole.sqrt(), "d ** 0.5");
      expect_whole(d / 2, at::tensor({0.5f, 1.0f, 1.5f, 2.0f}), "d / 2");
      expect_whole(d / 4, at::tensor({0.25f, 0.5f, 0.75f, 1.0f}), "d / 4");
    }
  });
}

TEST(Case32_Elementwise_Promotion, FollowsTorchInWrapperAndLocal) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    for (const std::vector<Placement>& placements :
         {std::vector<Placement>{Shard(0)}, ragged({1, 4}), ragged({0, 1})}) {
      const DTensor d = distribute(at::arange(5, at::kLong), mesh, placements);
      expect_whole(d / 2, at::tensor({0.0f, 0.5f, 1.0f, 1.5f, 2.0f}), "d / 2");
      expect_whole(true_divide(d, 2), at::tensor({0.0f, 0.5f, 1.0f, 1.5f, 2.0f}), "true_divide(d, 2)");
      expect_whole(2 - d, at::tensor({2, 1, 0, -1, -2}, at::kLong), "2 - d");
      expect_whole(rpow(d, 2), at::tensor({1, 2, 4, 8, 16}, at::kLong), "2 ** d");
      expect_whole(d + 1.5, at::tensor({1.5f, 2.5f, 3.5f, 4.5f, 5.5f}), "d + 1.5");
      expect_whole(d * true, at::arange(5, at::kLong), "d * True");
      expect_whole(sqrt(d), at::arange(5, at::kFloat).sqrt(), "sqrt(d)");
      expect_whole(isnan(to(d, at::kFloat)), at::zeros({5}, at::kBool), "isnan(d.float())");
    }
  });
}

TEST(Elementwise_ZeroSizedTensors, HaveEmptySharesAndTheRightDtype) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(at::ones({2, 0, 3}, at::kLong), mesh, ragged({1, 1}, {0, 1}));
    EXPECT_EQ(x.local().numel(), 0);
    expect_whole(x / 2, at::ones({2, 0, 3}), "x / 2");
    expect_whole(x + distribute(at::ones({2, 0, 3}, at::kDouble), mesh, replicated()), at::ones({2, 0, 3}, at::kDouble),
                 "x + y");
  });
}

}  // namespace
}  // namespace hyper_parallel::test
