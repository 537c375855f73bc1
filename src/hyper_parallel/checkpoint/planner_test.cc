#include "hyper_parallel/checkpoint/planner.h"

#include <gtest/gtest.h>

#include "tests/support/buffer_planners.h"
#include "tests/support/error_of.h"
#include "tests/support/safetensors_bytes.h"

namespace hyper_parallel {
namespace {

TEST(CheckedData, IsWhatThePlannerGivesIfItHasTheBoxesSize) {
  BufferSavePlanner planner;
  planner.add({"w", DType::kU8, {2, 3}, {{{0, 0}, {1, 3}}, {{1, 0}, {1, 3}}}}, "abcdef");
  EXPECT_EQ(text_of(checked_data(planner, {&planner.plan.tensors[0], 1}).bytes), "def");
  EXPECT_EQ(planner.data_calls, 1);
}

TEST(CheckedData, OfAnotherSize_IsRefused) {
  struct Fixed final : SavePlanner {
    SavePlan build_local_plan() override { return {}; }
    HeldBytes get_data(const WriteItem&) override { return {bytes_of("abc"), nullptr}; }
  } planner;
  const PlannedTensor longer{"w", DType::kI16, {2}, {{{0}, {2}}}};
  EXPECT_EQ(error_of([&] { checked_data(planner, {&longer, 0}); }),
            "InvalidArgument: get_data of tensor 'w' gave 3 bytes, but box (0,)+(2,) of I16 takes 4");
  const PlannedTensor shorter{"w", DType::kU8, {2}, {{{0}, {2}}}};
  EXPECT_EQ(error_of([&] { checked_data(planner, {&shorter, 0}); }),
            "InvalidArgument: get_data of tensor 'w' gave 3 bytes, but box (0,)+(2,) of U8 takes 2");
}

}  // namespace
}  // namespace hyper_parallel
