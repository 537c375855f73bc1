#include "hyper_parallel/operations/dims_argument.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DimsArgument_OneDim, NegativeDim_CountsFromTheEnd) {
  EXPECT_EQ(folded_dim(0, 3), 0);
  EXPECT_EQ(folded_dim(2, 3), 2);
  EXPECT_EQ(folded_dim(-1, 3), 2);
  EXPECT_EQ(folded_dim(-3, 3), 0);
}

TEST(DimsArgument_OneDim, TensorOfNoDims_HasZeroAndMinusOne) {
  EXPECT_EQ(folded_dim(0, 0), 0);
  EXPECT_EQ(folded_dim(-1, 0), 0);
  expect_error(ErrorCode::kOutOfRange, "dim 1 is out of range for a tensor of 0 dims", [] { folded_dim(1, 0); });
}

TEST(DimsArgument_OneDim, DimOutside_RaisesOutOfRange) {
  expect_error(ErrorCode::kOutOfRange, "dim 3 is out of range for a tensor of 3 dims", [] { folded_dim(3, 3); });
  expect_error(ErrorCode::kOutOfRange, "dim -4 is out of range for a tensor of 3 dims", [] { folded_dim(-4, 3); });
}

TEST(DimsArgument_Several, Dims_AreFoldedInOrder) {
  EXPECT_THAT(folded_dims(std::vector<int64_t>{-1, 0}, 3), ElementsAre(2, 0));
}

TEST(DimsArgument_Several, NoDims_MeanAll) {
  EXPECT_THAT(folded_dims({}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(folded_dims({}, 0), IsEmpty());
}

TEST(DimsArgument_Several, DimTwice_RaisesHoweverItIsWritten) {
  expect_error(ErrorCode::kInvalidArgument, "dim -1 stands twice among the dims, but must be unique",
               [] { folded_dims(std::vector<int64_t>{2, -1}, 3); });
  expect_error(ErrorCode::kOutOfRange, "dim 5 is out of range", [] { folded_dims(std::vector<int64_t>{0, 5}, 3); });
}

}  // namespace
}  // namespace hyper_parallel
