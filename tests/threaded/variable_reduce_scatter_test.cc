#include "hyper_parallel/torch/variable_reduce_scatter.h"

#include <limits>
#include <numeric>

#include "tests/threaded/both_paths.h"
#include "tests/threaded/gradient_check.h"

namespace hyper_parallel::test {
namespace {

using Splits = std::vector<int64_t>;

class VariableReduceScatter : public PathTest {
 protected:
  /// Reduces inputs.at(r) of each rank r and compares each rank's rows with those of `expected`.
  void expect_reduces(const std::vector<at::Tensor>& inputs, const Splits& splits, Reduction reduction,
                      const at::Tensor& expected) {
    run(static_cast<int>(inputs.size()), [&](const ThreadRank& self) {
      const auto rank = static_cast<size_t>(self.rank);
      const int64_t begin = std::accumulate(splits.begin(), splits.begin() + self.rank, int64_t{0});
      expect_equal(variable_reduce_scatter(inputs[rank], splits, reduction, self.group),
                   expected.narrow(0, begin, splits[rank]));
    });
  }
};

class VariableReduceScatterChecked : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, VariableReduceScatter, ::testing::ValuesIn(all_paths()), name_of);
INSTANTIATE_TEST_SUITE_P(Paths, VariableReduceScatterChecked, ::testing::ValuesIn(checked_paths()), name_of);

TEST_P(VariableReduceScatter, UnevenRows_AreSummed) {
  const at::Tensor rows = at::arange(16, at::kLong).view({8, 2});
  expect_reduces({rows, rows * 10, rows * 100, rows * 1000}, {1, 2, 0, 5}, Reduction::kSum, rows * 1111);
  expect_reduces({floats({1, 2, 3}), floats({10, 20, 30})}, {1, 2}, Reduction::kSum, floats({11, 22, 33}));
}

TEST_P(VariableReduceScatter, MaxAndMin_AreTakenAndNanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<at::Tensor> inputs{floats({1, -5, 7}), floats({2, -6, 3}), floats({0, -4, 9})};
  expect_reduces(inputs, {1, 0, 2}, Reduction::kMax, floats({2, -4, 9}));
  expect_reduces(inputs, {1, 0, 2}, Reduction::kMin, floats({0, -6, 3}));
  run(2, [&](const ThreadRank& self) {
    const at::Tensor input = self.rank == 1 ? floats({nan, nan}) : floats({1, 2});
    const at::Tensor output = variable_reduce_scatter(input, Splits{1, 1}, Reduction::kMax, self.group);
    EXPECT_TRUE(output.isnan().all().item<bool>());
  });
}

TEST_P(VariableReduceScatter, TermsAreSummedInGroupOrder) {
  // (1e8 + -1e8) + 1 is 1, every other order gives 0.
  expect_reduces({floats({1e8F, 1e8F, 1e8F}), floats({-1e8F, -1e8F, -1e8F}), floats({1, 1, 1})}, {1, 1, 1},
                 Reduction::kSum, floats({1, 1, 1}));
}

TEST_P(VariableReduceScatter, SharesOfManyChunks_AreSummed) {
  // More than the three 1 MiB chunks that are on their way at a time, and a last chunk that is shorter.
  const int64_t rows = (int64_t{5} << 18) + 3;
  const at::Tensor input = at::arange(2 * rows, at::kInt);
  expect_reduces({input, input * 2, input * 4}, {rows, rows - 7, 7}, Reduction::kSum, input * 7);
}

TEST_P(VariableReduceScatter, Input_IsNotChanged) {
  run(2, [](const ThreadRank& self) {
    const at::Tensor input = floats({1, 2});
    variable_reduce_scatter(input, Splits{1, 1}, Reduction::kSum, self.group);
    expect_equal(input, floats({1, 2}));
  });
}

TEST_P(VariableReduceScatter, EveryRankEmpty_GivesEmpty) {
  expect_reduces({at::zeros({0, 3}), at::zeros({0, 3})}, {0, 0}, Reduction::kSum, at::zeros({0, 3}));
  expect_reduces({at::zeros({2, 0}), at::zeros({2, 0})}, {0, 2}, Reduction::kSum, at::zeros({2, 0}));
}

TEST_P(VariableReduceScatter, Gradient_EqualsFiniteDifferences) {
  const Splits splits{2, 0, 1};
  run(3, [&](const ThreadRank& self) {
    const at::Tensor input = (at::arange(6, at::kDouble).view({3, 2}) + self.rank).cos();
    const Differentiable reduce = [&](const at::Tensor& x) {
      return differentiable_variable_reduce_scatter(x, splits, self.group);
    };
    expect_gradient(self, reduce, input);
    expect_second_gradient(self, reduce, input);
  });
}

TEST_P(VariableReduceScatter, BadArguments_RaiseOnAllRanks) {
  const auto error_for = [&](const at::Tensor& input, const Splits& splits, Reduction reduction) {
    const auto texts =
        errors(2, [&](const ThreadRank& self) { variable_reduce_scatter(input, splits, reduction, self.group); });
    EXPECT_EQ(texts[0], texts[1]);
    return texts[0];
  };
  EXPECT_EQ(error_for(at::zeros({3}), {1, 1}, Reduction::kSum),
            "InvalidArgument: variable_reduce_scatter: input_splits (1, 1) sums to 2 but input has 3 rows");
  EXPECT_EQ(error_for(at::zeros({3}), {3}, Reduction::kSum),
            "InvalidArgument: variable_reduce_scatter: input_splits has 1 entries but the group has 2 members");
  EXPECT_EQ(error_for(at::zeros({2}, at::kBool), {1, 1}, Reduction::kSum),
            "Type: variable_reduce_scatter: the input is bool, which has no sum");
  EXPECT_EQ(error_for(at::zeros({2}, at::kComplexFloat), {1, 1}, Reduction::kMax),
            "Type: variable_reduce_scatter: the input is complex, which has no max");
}

TEST_P(VariableReduceScatter, NullGroup_IsATypeError) {
  EXPECT_EQ(error_of([] { variable_reduce_scatter(at::zeros({1}), Splits{1}, Reduction::kSum, nullptr); }),
            "Type: variable_reduce_scatter: group is null but must be a process group");
}

TEST_P(VariableReduceScatterChecked, UnlikeReductions_RaiseTheSameErrorOnAllRanks) {
  const auto texts = errors(2, [](const ThreadRank& self) {
    variable_reduce_scatter(at::zeros({2}), Splits{1, 1}, self.rank == 0 ? Reduction::kSum : Reduction::kMax,
                            self.group);
  });
  EXPECT_EQ(texts[0],
            "FailedPrecondition: variable_reduce_scatter: the ranks of the group disagree about its arguments: "
            "rank 0: sum, input_splits (1, 1), input: dtype Float, row shape (), requires_grad false; "
            "rank 1: max, input_splits (1, 1), input: dtype Float, row shape (), requires_grad false");
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace hyper_parallel::test
