#include "hyper_parallel/torch/variable_all_gather.h"

#include <torch/csrc/autograd/function.h>

#include <numeric>

#include "tests/threaded/both_paths.h"
#include "tests/threaded/gradient_check.h"

namespace hyper_parallel::test {
namespace {

using Splits = std::vector<int64_t>;

/// This rank's rows of a tensor of which rank r holds splits[r] rows.
at::Tensor own_rows(const at::Tensor& whole, const Splits& splits, int rank) {
  const int64_t begin = std::accumulate(splits.begin(), splits.begin() + rank, int64_t{0});
  return whole.narrow(0, begin, splits[static_cast<size_t>(rank)]).clone();
}

class VariableAllGather : public PathTest {
 protected:
  void expect_gathers(const at::Tensor& whole, const Splits& splits) {
    run(static_cast<int>(splits.size()), [&](const ThreadRank& self) {
      expect_equal(differentiable_variable_all_gather(own_rows(whole, splits, self.rank), splits, self.group), whole);
    });
  }
};

class VariableAllGatherChecked : public PathTest {};
class VariableAllGatherUnchecked : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, VariableAllGather, ::testing::ValuesIn(all_paths()), name_of);
INSTANTIATE_TEST_SUITE_P(Paths, VariableAllGatherChecked, ::testing::ValuesIn(checked_paths()), name_of);
INSTANTIATE_TEST_SUITE_P(Paths, VariableAllGatherUnchecked, ::testing::ValuesIn(unchecked_paths()), name_of);

TEST_P(VariableAllGather, UnevenRows_AreConcatenatedInGroupOrder) {
  expect_gathers(at::arange(6, at::kFloat), {2, 0, 4});
  expect_gathers(at::arange(48, at::kLong).view({8, 3, 2}), {1, 2, 0, 5});
}

TEST_P(VariableAllGather, OneRank_CopiesItsInput) {
  run(1, [](const ThreadRank& self) {
    const at::Tensor input = at::arange(3, at::kFloat);
    const at::Tensor output = differentiable_variable_all_gather(input, Splits{3}, self.group);
    expect_equal(output, input);
    EXPECT_NE(output.data_ptr(), input.data_ptr());
  });
}

TEST_P(VariableAllGather, StridedInput_IsGatheredInRowMajorOrder) {
  run(2, [](const ThreadRank& self) {
    const at::Tensor strided = at::arange(6, at::kFloat).view({2, 3}).t();
    const at::Tensor output = differentiable_variable_all_gather(strided, Splits{3, 3}, self.group);
    expect_equal(output, at::cat({strided, strided}));
  });
}

TEST_P(VariableAllGather, LazilyConjugatedInput_IsResolved) {
  run(2, [](const ThreadRank& self) {
    const at::Tensor input = at::complex(floats({1, 2}), floats({3, 4})).conj();
    const at::Tensor output = differentiable_variable_all_gather(input, Splits{2, 2}, self.group);
    expect_equal(at::imag(output), floats({-3, -4, -3, -4}));
  });
}

TEST_P(VariableAllGather, EveryDtype_KeepsItsBits) {
  for (const at::ScalarType dtype :
       {at::kBool, at::kByte, at::kShort, at::kLong, at::kHalf, at::kBFloat16, at::kDouble, at::kComplexFloat}) {
    expect_gathers(at::arange(6, at::kLong).to(dtype), {1, 5});
  }
}

TEST_P(VariableAllGather, Case25_EveryRankEmpty_GivesEmpty) {
  expect_gathers(at::zeros({0, 4}), {0, 0});
  expect_gathers(at::zeros({4, 0}), {1, 3});
  expect_gathers(at::zeros({0}), {0, 0, 0});
}

TEST_P(VariableAllGather, Case19_ExpandedAndTransposedGradients_AreRight) {
  const Splits splits{2, 0, 4};
  const std::vector<at::Tensor> of_sum{floats({3, 3}), floats({}), floats({3, 3, 3, 3})};
  const std::vector<at::Tensor> of_transposed{floats({3, 3}), floats({}), floats({3, 30, 30, 30})};
  run(3, [&](const ThreadRank& self) {
    const auto rank = static_cast<size_t>(self.rank);
    const at::Tensor input = own_rows(at::arange(6, at::kFloat), splits, self.rank).requires_grad_();
    differentiable_variable_all_gather(input, splits, self.group).sum().backward();
    expect_equal(input.grad(), of_sum[rank]);
    input.mutable_grad() = at::Tensor();
    const at::Tensor output = differentiable_variable_all_gather(input, splits, self.group);
    output.view({2, 3}).t().matmul(floats({1, 10})).sum().backward();
    expect_equal(input.grad(), of_transposed[rank]);
  });
}

TEST_P(VariableAllGather, Case20_UnlikeLosses_GradientIsTheirSum) {
  run(2, [](const ThreadRank& self) {
    const at::Tensor input = own_rows(at::arange(4, at::kFloat), {2, 2}, self.rank).requires_grad_();
    const at::Tensor output = differentiable_variable_all_gather(input, Splits{2, 2}, self.group);
    (output.sum() * (self.rank + 1)).backward();
    expect_equal(input.grad(), floats({3, 3}));
  });
}

TEST_P(VariableAllGather, Case22_WeightsPerRank_GradientFollowsRealSplits) {
  const Splits splits{2, 0, 4};
  const std::vector<at::Tensor> expected{floats({6, 12}), floats({}), floats({18, 24, 30, 36})};
  run(3, [&](const ThreadRank& self) {
    const at::Tensor input = own_rows(at::arange(6, at::kFloat), splits, self.rank).requires_grad_();
    const at::Tensor weights = at::arange(1, 7, at::kFloat) * (self.rank + 1);
    (differentiable_variable_all_gather(input, splits, self.group) * weights).sum().backward();
    expect_equal(input.grad(), expected[static_cast<size_t>(self.rank)]);
  });
}

TEST_P(VariableAllGatherChecked, Case22_RankWithoutRequiresGrad_RaisesOnAllRanks) {
  const Splits splits{2, 0, 4};
  const auto texts = errors(3, [&](const ThreadRank& self) {
    const at::Tensor input = own_rows(at::arange(6, at::kFloat), splits, self.rank).requires_grad_(self.rank != 1);
    differentiable_variable_all_gather(input, splits, self.group);
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(
        text,
        "FailedPrecondition: differentiable_variable_all_gather: the ranks of the group disagree about its arguments: "
        "rank 0, 2: output_splits (2, 0, 4), input: dtype Float, row shape (), requires_grad true; "
        "rank 1: output_splits (2, 0, 4), input: dtype Float, row shape (), requires_grad false");
  }
}

TEST_P(VariableAllGather, UndefinedGradient_CountsAsZerosAndEntersTheCollective) {
  run(2, [](const ThreadRank& self) {
    const at::Tensor input = at::ones({2}).requires_grad_();
    const at::Tensor output = differentiable_variable_all_gather(input, Splits{2, 2}, self.group);
    const auto node = output.grad_fn();
    const auto gradients = (*node)({self.rank == 0 ? at::Tensor() : at::full({4}, 7.0F)});
    expect_equal(gradients[0], floats({7, 7}));
  });
}

TEST_P(VariableAllGather, Gradient_EqualsFiniteDifferences) {
  const Splits splits{2, 0, 1};
  run(3, [&](const ThreadRank& self) {
    const at::Tensor input = own_rows(at::arange(6, at::kDouble).view({3, 2}).cos(), splits, self.rank);
    const Differentiable gather = [&](const at::Tensor& x) {
      return differentiable_variable_all_gather(x, splits, self.group);
    };
    expect_gradient(self, gather, input);
    expect_second_gradient(self, gather, input);
  });
}

TEST_P(VariableAllGather, NullGroup_IsATypeError) {
  EXPECT_EQ(error_of([] { differentiable_variable_all_gather(at::zeros({1}), Splits{1}, nullptr); }),
            "Type: differentiable_variable_all_gather: group is null but must be a process group");
}

TEST_P(VariableAllGather, Case28_BadListOnAllRanks_RaisesOnAllRanks) {
  const std::string prefix = "InvalidArgument: differentiable_variable_all_gather: output_splits";
  const auto error_for = [&](const Splits& splits) {
    const auto texts = errors(
        2, [&](const ThreadRank& self) { differentiable_variable_all_gather(at::zeros({2}), splits, self.group); });
    EXPECT_EQ(texts[0].substr(0, prefix.size()), texts[1].substr(0, prefix.size()));
    return texts[0];
  };
  EXPECT_EQ(error_for({4}), prefix + " has 1 entries but the group has 2 members");
  EXPECT_EQ(error_for({}), prefix + " has 0 entries but the group has 2 members");
  EXPECT_EQ(error_for({-1, 3}), prefix + "[0] is -1 but row counts must not be negative");
  EXPECT_EQ(error_for({1, 1}), prefix + "[0] is 1 but this rank's input has 2 rows");
  EXPECT_EQ(error_for({0, 0}), prefix + "[0] is 0 but this rank's input has 2 rows");
}

TEST_P(VariableAllGather, InputWithoutDims_IsRefused) {
  const auto texts = errors(
      2, [](const ThreadRank& self) { differentiable_variable_all_gather(at::zeros({}), Splits{1, 1}, self.group); });
  for (const std::string& text : texts) {
    EXPECT_EQ(text,
              "InvalidArgument: differentiable_variable_all_gather: input has no dims but splits count rows of dim 0");
  }
}

TEST_P(VariableAllGatherChecked, WrongRowsOnOneRank_RaisesOnBothAtOnce) {
  const auto texts = errors(2, [](const ThreadRank& self) {
    differentiable_variable_all_gather(at::zeros({self.rank + 2}), Splits{2, 2}, self.group);
  });
  const std::string fault =
      "differentiable_variable_all_gather: output_splits[1] is 2 but this rank's input has 3 rows";
  EXPECT_EQ(texts[1], "InvalidArgument: " + fault);
  EXPECT_EQ(texts[0],
            "FailedPrecondition: differentiable_variable_all_gather: refused on another rank: rank 1: " + fault);
}

TEST_P(VariableAllGatherUnchecked, WrongRowsOnOneRank_RaisesThereAndPeerTimesOut) {
  const auto texts = errors(
      2,
      [](const ThreadRank& self) {
        differentiable_variable_all_gather(at::zeros({self.rank + 2}), Splits{2, 2}, self.group);
      },
      std::chrono::milliseconds(200));
  EXPECT_EQ(
      texts[1],
      "InvalidArgument: differentiable_variable_all_gather: output_splits[1] is 2 but this rank's input has 3 rows");
  EXPECT_EQ(texts[0].substr(0, 19), "FailedPrecondition:");
}

TEST_P(VariableAllGatherChecked, UnlikeDtypesOrShapes_RaiseTheSameErrorOnAllRanks) {
  const auto texts = errors(2, [](const ThreadRank& self) {
    differentiable_variable_all_gather(at::zeros({1, 2}, self.rank == 0 ? at::kFloat : at::kDouble), Splits{1, 1},
                                       self.group);
  });
  EXPECT_EQ(
      texts[0],
      "FailedPrecondition: differentiable_variable_all_gather: the ranks of the group disagree about its arguments: "
      "rank 0: output_splits (1, 1), input: dtype Float, row shape (2,), requires_grad false; "
      "rank 1: output_splits (1, 1), input: dtype Double, row shape (2,), requires_grad false");
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace hyper_parallel::test
