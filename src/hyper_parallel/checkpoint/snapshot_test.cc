#include "hyper_parallel/checkpoint/snapshot.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "hyper_parallel/base/error.h"
#include "tests/support/buffer_planners.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"

namespace hyper_parallel {
namespace {

BufferSavePlanner two_tensors() {
  BufferSavePlanner planner;
  planner.add({"w", DType::kU8, {7}, {{{0}, {3}}, {{3}, {4}}}}, "abcdefg");
  planner.add({"e", DType::kF32, {0}, {}}, "");
  planner.add({"v", DType::kI16, {2}, {{{0}, {2}}}}, "1234");
  return planner;
}

std::string data_of(SavePlanner& planner, const SavePlan& plan, size_t tensor, size_t box) {
  return text_of(planner.get_data({&plan.tensors[tensor], box}).bytes);
}

TEST(Snapshot, BytesAreThoseOfItsTime) {
  BufferSavePlanner planner = two_tensors();
  const SavePlan plan = planner.plan;
  SnapshotMemory memory;
  const auto snapshot = take_snapshot(plan, planner, memory);
  for (std::string& buffer : planner.buffers) buffer.assign(buffer.size(), '-');
  EXPECT_EQ(data_of(*snapshot, plan, 0, 0), "abc");
  EXPECT_EQ(data_of(*snapshot, plan, 0, 1), "defg");
  EXPECT_EQ(data_of(*snapshot, plan, 2, 0), "1234");
}

TEST(Snapshot, EachBox_IsAskedForOnce) {
  BufferSavePlanner planner = two_tensors();
  const SavePlan plan = planner.plan;
  SnapshotMemory memory;
  take_snapshot(plan, planner, memory);
  EXPECT_EQ(planner.data_calls, 3);
}

TEST(Snapshot, NextOne_UsesTheSameMemory) {
  BufferSavePlanner planner = two_tensors();
  const SavePlan plan = planner.plan;
  SnapshotMemory memory;
  const auto first = take_snapshot(plan, planner, memory);
  const std::byte* const place = first->get_data({&plan.tensors[0], 0}).bytes.data();
  planner.buffers[0] = "ABCDEFG";
  const auto second = take_snapshot(plan, planner, memory);
  EXPECT_EQ(second->get_data({&plan.tensors[0], 0}).bytes.data(), place);
  EXPECT_EQ(data_of(*second, plan, 0, 1), "DEFG");
}

TEST(Snapshot, EmptyPlan_NeedsNoMemory) {
  BufferSavePlanner planner;
  const SavePlan plan;
  SnapshotMemory memory;
  EXPECT_NE(take_snapshot(plan, planner, memory), nullptr);
  EXPECT_TRUE(memory.reserve(0).empty());
}

TEST(Snapshot, MakesNoPlan) {
  BufferSavePlanner planner = two_tensors();
  const SavePlan plan = planner.plan;
  SnapshotMemory memory;
  const auto snapshot = take_snapshot(plan, planner, memory);
  EXPECT_EQ(error_of([&] { snapshot->build_local_plan(); }),
            "FailedPrecondition: a snapshot holds the bytes of a plan that is made; it makes none");
}

TEST(Snapshot, CopyOfThePlan_AsksAsWell) {
  BufferSavePlanner planner = two_tensors();
  const SavePlan plan = planner.plan;
  const SavePlan copy = plan;
  SnapshotMemory memory;
  const auto snapshot = take_snapshot(plan, planner, memory);
  EXPECT_EQ(snapshot->get_data({&copy.tensors[0], 0}).bytes.data(),
            snapshot->get_data({&plan.tensors[0], 0}).bytes.data());
}

TEST(Snapshot, TensorOrBoxOfAnotherPlan_IsRefused) {
  BufferSavePlanner planner = two_tensors();
  const SavePlan plan = planner.plan;
  SnapshotMemory memory;
  const auto snapshot = take_snapshot(plan, planner, memory);
  PlannedTensor other = plan.tensors[0];
  other.name = "other";
  expect_error(ErrorCode::kInvalidArgument, "tensor 'other' is not in the snapshot",
               [&] { snapshot->get_data({&other, 0}); });
  other = plan.tensors[0];
  other.boxes[0].offsets[0] += 1;
  expect_error(ErrorCode::kInvalidArgument, "the snapshot has no box", [&] { snapshot->get_data({&other, 0}); });
}

TEST(Snapshot, DataOfAnotherSize_IsRefused) {
  class ShortPlanner final : public BufferSavePlanner {
   public:
    HeldBytes get_data(const WriteItem&) override { return {std::as_bytes(std::span(buffers[0])).first(2), nullptr}; }
  };
  ShortPlanner planner;
  planner.add({"w", DType::kU8, {7}, {{{0}, {7}}}}, "abcdefg");
  const SavePlan plan = planner.plan;
  SnapshotMemory memory;
  EXPECT_EQ(error_of([&] { take_snapshot(plan, planner, memory); }),
            "InvalidArgument: get_data of tensor 'w' gave 2 bytes, but box (0,)+(7,) of U8 takes 7");
}

TEST(SnapshotMemory, GrowsAndNeverShrinks) {
  SnapshotMemory memory;
  const std::span<std::byte> small = memory.reserve(10);
  ASSERT_GE(small.size(), 10U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data()) % 4096, 0U);
  const std::span<std::byte> large = memory.reserve(static_cast<int64_t>(small.size()) + 1);
  EXPECT_GT(large.size(), small.size());
  large.back() = std::byte{7};  // all of it is there
  EXPECT_EQ(memory.reserve(10).data(), large.data());
  EXPECT_EQ(memory.reserve(10).size(), large.size());
}

TEST(SnapshotMemory, MoreThanTheMachineHas_IsRefused) {
  SnapshotMemory memory;
  EXPECT_EQ(
      error_of([&] { memory.reserve(int64_t{1} << 60); }),
      "FailedPrecondition: cannot reserve 1152921504606846976 bytes of memory for a snapshot: Cannot allocate memory");
  EXPECT_GE(memory.reserve(10).size(), 10U);
  EXPECT_EQ(error_of([&] { memory.reserve(std::numeric_limits<int64_t>::max()); }).substr(0, 16), "InvalidArgument:");
}

}  // namespace
}  // namespace hyper_parallel
