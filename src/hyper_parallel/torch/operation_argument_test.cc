#include "hyper_parallel/torch/operation_argument.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace hyper_parallel {
namespace {

TEST(Argument_Describe, NamesKindAndValue) {
  const at::Tensor tensor = at::ones({2, 3});
  const at::Tensor undefined;
  EXPECT_EQ(Argument().describe(), "None");
  EXPECT_EQ(Argument(tensor).describe(), "a plain tensor of shape (2, 3)");
  EXPECT_EQ(Argument(undefined).describe(), "an undefined tensor");
  EXPECT_EQ(Argument(2).describe(), "the number 2");
  EXPECT_EQ(Argument(2.5).describe(), "the number 2.5");
  EXPECT_EQ(Argument(true).describe(), "the number True");
  EXPECT_EQ(Argument(at::kFloat).describe(), "the dtype Float");
  EXPECT_EQ(Argument("floor").describe(), "the text 'floor'");
  EXPECT_EQ(Argument(Argument::List{1, 2.0}).describe(), "a list of 2");
}

TEST(Argument_Numbers, KeepTheirType) {
  EXPECT_TRUE(Argument(true).number()->isBoolean());
  EXPECT_TRUE(Argument(int64_t{1} << 40).number()->isIntegral(false));
  EXPECT_TRUE(Argument(1.0f).number()->isFloatingPoint());
}

TEST(Argument_List, RefersToTheElements) {
  const std::vector<at::Tensor> tensors{at::ones({1}), at::ones({2})};
  const Argument list = Argument::list(tensors);
  ASSERT_EQ(list.items()->size(), 2u);
  EXPECT_EQ((*list.items())[1].plain_tensor(), &tensors[1]);
}

}  // namespace
}  // namespace hyper_parallel
