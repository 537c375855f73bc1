#include "hyper_parallel/torch/split_lists.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using Splits = std::vector<int64_t>;

std::string check(const Splits& splits, int64_t group_size) {
  return error_of([&] { check_splits("gather", "output_splits", splits, group_size); });
}

TEST(SplitLists, ZeroEntries_AreAccepted) {
  EXPECT_EQ(check({0, 0}, 2), "no error");
  EXPECT_EQ(check({2, 0, 4}, 3), "no error");
}

TEST(SplitLists, WrongLength_IsRefused) {
  EXPECT_EQ(check({4}, 2), "InvalidArgument: gather: output_splits has 1 entries but the group has 2 members");
  EXPECT_EQ(check({}, 2), "InvalidArgument: gather: output_splits has 0 entries but the group has 2 members");
}

TEST(SplitLists, NegativeEntry_IsRefused) {
  EXPECT_EQ(check({5, -1}, 2), "InvalidArgument: gather: output_splits[1] is -1 but row counts must not be negative");
}

TEST(SplitLists, SumBeyondInt64_IsRefused) {
  const int64_t big = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(check({big, 1}, 2), "InvalidArgument: 9223372036854775807 + 1 does not fit in int64");
}

TEST(SplitLists, SumUnlikeRows_IsRefused) {
  const at::Tensor input = at::zeros({4, 2});
  EXPECT_EQ(error_of([&] { check_splits_cover("a2a", "input_splits", {1, 1}, input); }),
            "InvalidArgument: a2a: input_splits (1, 1) sums to 2 but input has 4 rows");
  EXPECT_EQ(error_of([&] { check_splits_cover("a2a", "input_splits", {3, 1}, input); }), "no error");
}

TEST(SplitLists, InputWithoutDims_IsRefused) {
  EXPECT_EQ(error_of([] { check_has_rows("gather", at::zeros({})); }),
            "InvalidArgument: gather: input has no dims but splits count rows of dim 0");
}

TEST(SplitLists, UndefinedInput_IsRefused) {
  EXPECT_EQ(error_of([] { check_has_rows("gather", at::Tensor()); }),
            "Type: gather: input is undefined but must be a tensor");
}

TEST(SplitLists, SplitRows_GivesViewsInOrder) {
  const at::Tensor tensor = at::arange(12).view({6, 2});
  const auto rows = split_rows(tensor, Splits{2, 0, 4});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].data_ptr(), tensor.data_ptr());
  EXPECT_EQ(rows[1].sizes(), at::IntArrayRef({0, 2}));
  EXPECT_TRUE(at::equal(rows[2], tensor.slice(0, 2, 6)));
}

TEST(SplitLists, EmptyRowsLike_ReplacesDimZero) {
  const at::Tensor like = empty_rows_like(at::zeros({3, 4, 5}, at::kDouble).transpose(1, 2), 7);
  EXPECT_EQ(like.sizes(), at::IntArrayRef({7, 5, 4}));
  EXPECT_TRUE(like.is_contiguous());
  EXPECT_EQ(like.scalar_type(), at::kDouble);
}

TEST(SplitLists, EmptyRowsLike_ShapeBeyondInt64_IsRefused) {
  const at::Tensor input = at::zeros({1, 16});
  EXPECT_EQ(error_of([&] { empty_rows_like(input, int64_t{1} << 60); }),
            "InvalidArgument: 1152921504606846976 * 16 does not fit in int64");
}

TEST(SplitLists, PlainRows_ResolvesStridesAndConjugation) {
  const at::Tensor strided = at::arange(6).view({2, 3}).t();
  EXPECT_TRUE(as_plain_rows(strided).is_contiguous());
  EXPECT_TRUE(at::equal(as_plain_rows(strided), strided));
  const at::Tensor conjugate = at::complex(at::ones({2}), at::ones({2})).conj();
  EXPECT_FALSE(as_plain_rows(conjugate).is_conj());
  EXPECT_EQ(at::imag(as_plain_rows(conjugate))[0].item<float>(), -1.0F);
}

TEST(SplitLists, PlainRows_OfPlainMemory_IsNoCopy) {
  const at::Tensor plain = at::arange(6).view({2, 3});
  EXPECT_EQ(as_plain_rows(plain).data_ptr(), plain.data_ptr());
}

TEST(SplitLists, DescribeRows_SaysWhatMustAgree) {
  const at::Tensor input = at::zeros({3, 4}).requires_grad_();
  EXPECT_EQ(describe_rows("input", input), "input: dtype Float, row shape (4,), requires_grad true");
  const at::NoGradGuard no_grad;
  EXPECT_EQ(describe_rows("input", input), "input: dtype Float, row shape (4,), requires_grad false");
}

}  // namespace
}  // namespace hyper_parallel
