#include "hyper_parallel/torch/variable_all_to_all.h"

#include "tests/threaded/both_paths.h"
#include "tests/threaded/gradient_check.h"

namespace hyper_parallel::test {
namespace {

using Splits = std::vector<int64_t>;

/// matrix[s][r]: the rows that rank s sends to rank r.
using Matrix = std::vector<Splits>;

Splits sent_by(const Matrix& matrix, int rank) { return matrix[static_cast<size_t>(rank)]; }

Splits received_by(const Matrix& matrix, int rank) {
  Splits splits;
  for (const Splits& row : matrix) splits.push_back(row[static_cast<size_t>(rank)]);
  return splits;
}

class VariableAllToAll : public PathTest {};
class VariableAllToAllChecked : public PathTest {};
class VariableAllToAllUnchecked : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, VariableAllToAll, ::testing::ValuesIn(all_paths()), name_of);
INSTANTIATE_TEST_SUITE_P(Paths, VariableAllToAllChecked, ::testing::ValuesIn(checked_paths()), name_of);
INSTANTIATE_TEST_SUITE_P(Paths, VariableAllToAllUnchecked, ::testing::ValuesIn(unchecked_paths()), name_of);

TEST_P(VariableAllToAll, UnevenRows_ArriveInSenderOrder) {
  run(2, [](const ThreadRank& self) {
    const bool first = self.rank == 0;
    const at::Tensor input = first ? floats({1, 2, 3}) : floats({4});
    const at::Tensor output = differentiable_all_to_all_single(input, first ? Splits{1, 2} : Splits{0, 1},
                                                               first ? Splits{1, 0} : Splits{2, 1}, self.group);
    expect_equal(output, first ? floats({1}) : floats({2, 3, 4}));
  });
}

TEST_P(VariableAllToAll, RowsOfSeveralDims_AndEmptyRanks_Travel) {
  // Rank 1 sends nothing, rank 2 receives nothing.
  const Matrix matrix{{1, 2, 0}, {0, 0, 0}, {3, 1, 0}};
  run(3, [&](const ThreadRank& self) {
    const Splits sent = sent_by(matrix, self.rank);
    const int64_t rows = sent[0] + sent[1] + sent[2];
    const at::Tensor input = at::arange(rows * 2, at::kLong).view({rows, 2}) + 100 * self.rank;
    const at::Tensor output = differentiable_all_to_all_single(input, sent, received_by(matrix, self.rank), self.group);
    const at::Tensor from_first = at::arange(6, at::kLong).view({3, 2});
    const at::Tensor from_last = at::arange(8, at::kLong).view({4, 2}) + 200;
    const std::vector<at::Tensor> expected{at::cat({from_first.slice(0, 0, 1), from_last.slice(0, 0, 3)}),
                                           at::cat({from_first.slice(0, 1, 3), from_last.slice(0, 3, 4)}),
                                           at::zeros({0, 2}, at::kLong)};
    expect_equal(output, expected[static_cast<size_t>(self.rank)]);
  });
}

TEST_P(VariableAllToAll, Case25_NothingToSendAnywhere_GivesEmpty) {
  run(2, [](const ThreadRank& self) {
    const at::Tensor output = differentiable_all_to_all_single(at::zeros({0, 4}), {0, 0}, {0, 0}, self.group);
    expect_equal(output, at::zeros({0, 4}));
    expect_equal(differentiable_all_to_all_single(at::zeros({2, 0}), {1, 1}, {1, 1}, self.group), at::zeros({2, 0}));
  });
}

TEST_P(VariableAllToAll, Case19_ExpandedAndTransposedGradients_AreRight) {
  // Every rank sends the same rows to each of the three, 2, 0 or 4 of them, so that each receives 6.
  const std::vector<at::Tensor> of_transposed{floats({1, 1}), floats({}), floats({1, 10, 10, 10})};
  run(3, [&](const ThreadRank& self) {
    const Splits received{2, 0, 4};
    const auto rank = static_cast<size_t>(self.rank);
    const Splits sent(3, received[rank]);
    const at::Tensor input = at::arange(3 * received[rank], at::kFloat).requires_grad_();
    differentiable_all_to_all_single(input, sent, received, self.group).sum().backward();
    expect_equal(input.grad(), at::ones({3 * received[rank]}));
    input.mutable_grad() = at::Tensor();
    const at::Tensor output = differentiable_all_to_all_single(input, sent, received, self.group);
    output.view({2, 3}).t().matmul(floats({1, 10})).sum().backward();
    expect_equal(input.grad(), of_transposed[rank].repeat({3}));
  });
}

TEST_P(VariableAllToAll, Case20_UnlikeLosses_GradientComesFromTheReceiver) {
  run(2, [](const ThreadRank& self) {
    const at::Tensor input = at::ones({4}).requires_grad_();
    const at::Tensor output = differentiable_all_to_all_single(input, Splits{2, 2}, Splits{2, 2}, self.group);
    (output.sum() * (self.rank + 1)).backward();
    expect_equal(input.grad(), floats({1, 1, 2, 2}));
  });
}

TEST_P(VariableAllToAll, Gradient_EqualsFiniteDifferences) {
  const Matrix matrix{{1, 2, 0}, {0, 0, 0}, {1, 1, 0}};
  run(3, [&](const ThreadRank& self) {
    const Splits sent = sent_by(matrix, self.rank);
    const Splits received = received_by(matrix, self.rank);
    const int64_t rows = sent[0] + sent[1] + sent[2];
    const at::Tensor input = (at::arange(rows * 2, at::kDouble).view({rows, 2}) + self.rank).cos();
    const Differentiable exchange = [&](const at::Tensor& x) {
      return differentiable_all_to_all_single(x, sent, received, self.group);
    };
    expect_gradient(self, exchange, input);
    expect_second_gradient(self, exchange, input);
  });
}

TEST_P(VariableAllToAll, NullGroup_IsATypeError) {
  EXPECT_EQ(error_of([] { differentiable_all_to_all_single(at::zeros({1}), {1}, {1}, nullptr); }),
            "Type: differentiable_all_to_all_single: group is null but must be a process group");
}

TEST_P(VariableAllToAll, Case28_BadLists_RaiseOnAllRanks) {
  const std::string prefix = "InvalidArgument: differentiable_all_to_all_single: ";
  const auto error_for = [&](const Splits& output_splits, const Splits& input_splits) {
    const auto texts = errors(2, [&](const ThreadRank& self) {
      const at::Tensor input = at::arange(4, at::kFloat) + 10 * self.rank;
      differentiable_all_to_all_single(input, input_splits, output_splits, self.group);
    });
    EXPECT_EQ(texts[0].substr(0, prefix.size()), prefix);
    EXPECT_EQ(texts[1].substr(0, prefix.size()), prefix);
    return texts[0];
  };
  EXPECT_EQ(error_for({2, 2}, {1, 1}), prefix + "input_splits (1, 1) sums to 2 but input has 4 rows");
  EXPECT_EQ(error_for({4}, {4}), prefix + "input_splits has 1 entries but the group has 2 members");
  EXPECT_EQ(error_for({2, 2}, {-1, 5}), prefix + "input_splits[0] is -1 but row counts must not be negative");
  EXPECT_EQ(error_for({}, {}), prefix + "input_splits has 0 entries but the group has 2 members");
  EXPECT_EQ(error_for({}, {2, 2}), prefix + "output_splits has 0 entries but the group has 2 members");
  EXPECT_EQ(error_for({2, 2}, {}), prefix + "input_splits has 0 entries but the group has 2 members");
  EXPECT_EQ(error_for({2, 2}, {0, 0}), prefix + "input_splits (0, 0) sums to 0 but input has 4 rows");
}

/// Rank 0 sends (1, 3), rank 1 sends (2, 2), both expect (2, 2).
void exchange_mismatched(const ThreadRank& self) {
  const at::Tensor input = at::arange(4, at::kFloat) + 10 * self.rank;
  differentiable_all_to_all_single(input, self.rank == 0 ? Splits{1, 3} : Splits{2, 2}, Splits{2, 2}, self.group);
}

TEST_P(VariableAllToAllChecked, Case28_MismatchAcrossRanks_RaisesOnBothAtOnce) {
  const auto texts = errors(2, exchange_mismatched);
  const std::string fault =
      "differentiable_all_to_all_single: rank 0 sends itself 1 rows (input_splits (1, 3)) but expects 2 from itself "
      "(output_splits (2, 2))";
  EXPECT_EQ(texts[0], "InvalidArgument: " + fault);
  EXPECT_EQ(texts[1],
            "FailedPrecondition: differentiable_all_to_all_single: refused on another rank: rank 0: " + fault);
}

TEST_P(VariableAllToAllUnchecked, Case28_MismatchAcrossRanks_RaisesAtTheTimeout) {
  const auto texts = errors(2, exchange_mismatched, std::chrono::milliseconds(200));
  EXPECT_EQ(texts[0],
            "InvalidArgument: differentiable_all_to_all_single: rank 0 sends itself 1 rows (input_splits (1, 3)) but "
            "expects 2 from itself (output_splits (2, 2))");
  EXPECT_EQ(texts[1].substr(0, 19), "FailedPrecondition:");
}

/// Rank 0 sends 3 rows to rank 1, which expects 2 of them; every own entry is right.
void exchange_mismatched_pair(const ThreadRank& self) {
  const bool first = self.rank == 0;
  differentiable_all_to_all_single(at::zeros({first ? 4 : 2}), first ? Splits{1, 3} : Splits{1, 1},
                                   first ? Splits{1, 1} : Splits{2, 1}, self.group);
}

TEST_P(VariableAllToAllChecked, PairThatDisagrees_RaisesTheSameErrorOnAllRanks) {
  const auto texts = errors(2, exchange_mismatched_pair);
  EXPECT_EQ(
      texts[0],
      "FailedPrecondition: differentiable_all_to_all_single: rank 0 sends 3 rows to rank 1 (input_splits (1, 3)), "
      "which expects 2 (output_splits (2, 1))");
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_P(VariableAllToAllUnchecked, PairThatDisagrees_GetsNoData) {
  const auto texts = errors(2, exchange_mismatched_pair, std::chrono::milliseconds(200));
  for (const std::string& text : texts) EXPECT_EQ(text.substr(0, 19), "FailedPrecondition:") << text;
}

}  // namespace
}  // namespace hyper_parallel::test
