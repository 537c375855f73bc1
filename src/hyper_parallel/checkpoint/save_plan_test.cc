#include "hyper_parallel/checkpoint/save_plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/fnv1a.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using Clock = std::chrono::steady_clock;

Box box(Dims offsets, Dims sizes) { return {std::move(offsets), std::move(sizes)}; }

PlannedTensor f32(std::string name, Dims shape, std::vector<Box> boxes) {
  return {std::move(name), DType::kF32, std::move(shape), std::move(boxes)};
}

SavePlan of_tensors(std::vector<PlannedTensor> tensors) { return {std::move(tensors), {}, {}}; }

// Each rank's plan, of one tensor 'w' of that shape.
std::vector<SavePlan> plans_of(const Dims& shape, const std::vector<std::vector<Box>>& boxes) {
  std::vector<SavePlan> plans;
  for (const std::vector<Box>& of_rank : boxes) plans.push_back(of_tensors({f32("w", shape, of_rank)}));
  return plans;
}

// The boxes of 'w' that each rank was given.
std::vector<std::vector<Box>> assigned_boxes(const std::vector<SavePlan>& plans) {
  std::vector<std::vector<Box>> boxes;
  for (const SavePlan& plan : unite_save_plans(plans).assigned) {
    boxes.push_back(plan.tensors.empty() ? std::vector<Box>() : plan.tensors.at(0).boxes);
  }
  return boxes;
}

std::string fault_of(const std::vector<SavePlan>& plans) {
  return error_of([&] { unite_save_plans(plans); });
}

TEST(PlannedTensor, OfARaggedShare_HasTheBoxesOfItsInterval) {
  const PlannedTensor tensor = planned_tensor("w", DType::kF32, {3, 4, 5}, Region{whole_box({3, 4, 5}), {7, 53}});
  const std::vector<Box> expected = {box({0, 1, 2}, {1, 1, 3}), box({0, 2, 0}, {1, 2, 5}), box({1, 0, 0}, {1, 4, 5}),
                                     box({2, 0, 0}, {1, 2, 5}), box({2, 2, 0}, {1, 1, 3})};
  EXPECT_EQ(tensor.boxes, expected);
}

TEST(PlannedTensor, OfAnEmptyShare_HasNoBoxes) {
  EXPECT_EQ(planned_tensor("w", DType::kF32, {8}, Region{whole_box({8}), {3, 3}}), f32("w", {8}, {}));
  EXPECT_EQ(planned_tensor("w", DType::kF32, {5, 2}, region_of(box({5, 0}, {0, 2}))), f32("w", {5, 2}, {}));
}

TEST(WriteItem, Bytes_AreThoseOfTheBox) {
  const PlannedTensor tensor = f32("w", {4, 4}, {box({0, 0}, {2, 4}), box({2, 0}, {1, 3})});
  EXPECT_EQ((WriteItem{&tensor, 0}.bytes()), 32);
  EXPECT_EQ((WriteItem{&tensor, 1}.bytes()), 12);
  const PlannedTensor scalar{"s", DType::kF64, {}, {box({}, {})}};
  EXPECT_EQ((WriteItem{&scalar, 0}.bytes()), 8);
}

TEST(UniteSavePlans, DisjointBoxes_StayWithTheirRanks) {
  const std::vector<std::vector<Box>> boxes = {{box({0, 0}, {2, 3})}, {box({2, 0}, {2, 3})}, {box({4, 0}, {1, 3})}, {}};
  EXPECT_EQ(assigned_boxes(plans_of({5, 3}, boxes)), boxes);
}

TEST(UniteSavePlans, EmptyRanks_GetNothing_InWhateverOrder) {
  // RaggedShard units (0, 3, 0, 1) of 8 elements: ranks 0 and 1 start at the same cell.
  const std::vector<std::vector<Box>> boxes = {{}, {box({0}, {6})}, {}, {box({6}, {2})}};
  EXPECT_EQ(assigned_boxes(plans_of({8}, boxes)), boxes);
  const std::vector<std::vector<Box>> reversed(boxes.rbegin(), boxes.rend());
  EXPECT_EQ(assigned_boxes(plans_of({8}, reversed)), reversed);
}

TEST(UniteSavePlans, ReplicatedBox_IsOneRanksByNameAndNumber) {
  // Two boxes, each held by ranks 0 and 2 (first) and 1 and 2 (second), as [Replicate, Shard] might have it.
  const Box first = box({0}, {4});
  const Box second = box({4}, {4});
  const auto assigned = assigned_boxes(plans_of({8}, {{first}, {second}, {first, second}}));
  const bool first_to_upper = fnv1a_64("w") % 2 == 1;
  const bool second_to_upper = (fnv1a_64("w") + 1) % 2 == 1;
  EXPECT_EQ(assigned[0].size(), first_to_upper ? 0U : 1U);
  EXPECT_EQ(assigned[1].size(), second_to_upper ? 0U : 1U);
  EXPECT_EQ(assigned[2].size(), (first_to_upper ? 1U : 0U) + (second_to_upper ? 1U : 0U));
}

TEST(UniteSavePlans, Replicas_ShareManyTensorsEvenly) {
  std::vector<PlannedTensor> tensors;
  for (int i = 0; i < 400; ++i) tensors.push_back(f32("layer." + std::to_string(i), {2}, {box({0}, {2})}));
  const GlobalSavePlan global = unite_save_plans(std::vector<SavePlan>(4, of_tensors(tensors)));
  size_t total = 0;
  for (const SavePlan& plan : global.assigned) {
    EXPECT_GT(plan.tensors.size(), 60U);
    total += plan.tensors.size();
  }
  EXPECT_EQ(total, 400U);
}

TEST(UniteSavePlans, BoxesOfARank_KeepTheOrderOfItsStorage) {
  // The rank holds its boxes in an order that is not row-major.
  const std::vector<Box> boxes = {box({4}, {4}), box({0}, {4})};
  EXPECT_EQ(assigned_boxes(plans_of({8}, {boxes}))[0], boxes);
}

TEST(UniteSavePlans, TensorOfSomeRanks_IsStored) {
  const Box whole = box({0}, {2});
  const GlobalSavePlan global =
      unite_save_plans({of_tensors({f32("b", {2}, {whole})}), of_tensors({f32("a", {2}, {whole})})});
  EXPECT_EQ(global.assigned[0], of_tensors({f32("b", {2}, {whole})}));
  EXPECT_EQ(global.assigned[1], of_tensors({f32("a", {2}, {whole})}));
}

TEST(UniteSavePlans, TensorWithoutCells_IsNamedByTheLowestRankThatHasIt) {
  const GlobalSavePlan global =
      unite_save_plans({of_tensors({}), of_tensors({f32("e", {0, 4}, {})}), of_tensors({f32("e", {0, 4}, {})})});
  EXPECT_EQ(global.assigned[0], SavePlan());
  EXPECT_EQ(global.assigned[1], of_tensors({f32("e", {0, 4}, {})}));
  EXPECT_EQ(global.assigned[2], SavePlan());
}

TEST(UniteSavePlans, Scalar_IsOneBox) {
  const std::vector<std::vector<Box>> boxes = {{box({}, {})}};
  EXPECT_EQ(assigned_boxes(plans_of({}, boxes)), boxes);
}

TEST(UniteSavePlans, NoRanksOrNoEntries_AreNothing) {
  EXPECT_TRUE(unite_save_plans({}).assigned.empty());
  const GlobalSavePlan global = unite_save_plans({SavePlan(), SavePlan()});
  EXPECT_EQ(global.assigned, std::vector<SavePlan>(2));
  EXPECT_TRUE(global.values.empty());
  EXPECT_TRUE(global.structure.is_none());
}

TEST(UniteSavePlans, ValueOfSeveralRanks_IsTheLowests) {
  SavePlan first;
  first.values = {{"step", int64_t{3}}};
  SavePlan second;
  second.values = {{"step", int64_t{4}}, {"lr", 0.5}};
  const std::vector<NamedValue> expected = {{"lr", 0.5}, {"step", int64_t{3}}};
  EXPECT_EQ(unite_save_plans({SavePlan(), first, second}).values, expected);
}

TEST(UniteSavePlans, Structures_AreUnitedAndRanksWithoutEntriesSayNothing) {
  SavePlan first = of_tensors({f32("m.a", {1}, {box({0}, {1})})});
  first.structure = ValueDict{{{"m", ValueDict{{{"a", "m.a"}}}}}};
  SavePlan second;
  second.values = {{"n", int64_t{1}}};
  second.structure = ValueDict{{{"n", "n"}}};
  const Value expected = ValueDict{{{"m", ValueDict{{{"a", "m.a"}}}}, {"n", "n"}}};
  EXPECT_EQ(unite_save_plans({SavePlan(), first, second}).structure, expected);
}

TEST(UniteSavePlans, UnlikeDtypeOrShape_IsRefused) {
  const Box whole = box({0, 0}, {2, 3});
  SavePlan first = of_tensors({f32("w", {2, 3}, {whole})});
  SavePlan other = of_tensors({{"w", DType::kBF16, {2, 3}, {whole}}});
  EXPECT_EQ(
      fault_of({first, first, other}),
      "InvalidArgument: tensor 'w' is F32 (2, 3) on rank 0 but BF16 (2, 3) on rank 2; dtype and shape must be the "
      "same on all ranks");
  EXPECT_EQ(fault_of({first, of_tensors({f32("w", {3, 2}, {})})}),
            "InvalidArgument: tensor 'w' is F32 (2, 3) on rank 0 but F32 (3, 2) on rank 1; dtype and shape must be the "
            "same on all ranks");
}

TEST(UniteSavePlans, TensorHereAndValueThere_IsRefused) {
  const SavePlan tensor = of_tensors({f32("w", {1}, {box({0}, {1})})});
  SavePlan value;
  value.values = {{"w", int64_t{1}}};
  EXPECT_EQ(fault_of({tensor, value}),
            "InvalidArgument: 'w' is a tensor on rank 0 but a value on rank 1; it must be the same on all ranks");
  EXPECT_EQ(fault_of({value, tensor}),
            "InvalidArgument: 'w' is a tensor on rank 1 but a value on rank 0; it must be the same on all ranks");
}

TEST(UniteSavePlans, NameTwiceOnARank_IsRefused) {
  const PlannedTensor tensor = f32("w", {1}, {box({0}, {1})});
  EXPECT_EQ(fault_of({SavePlan(), of_tensors({tensor, tensor})}),
            "InvalidArgument: rank 1 has 'w' twice; the names of a rank's entries must differ");
  SavePlan values;
  values.values = {{"a", int64_t{1}}, {"a", int64_t{1}}};
  EXPECT_EQ(fault_of({values}), "InvalidArgument: rank 0 has 'a' twice; the names of a rank's entries must differ");
}

TEST(UniteSavePlans, NameThatIsNotUtf8_IsRefused) {
  EXPECT_EQ(fault_of({of_tensors({f32("a\xFF", {1}, {box({0}, {1})})})}),
            "InvalidArgument: the name 'a\\xff' is not UTF-8 text");
}

TEST(UniteSavePlans, BoxTwiceOnARank_IsRefused) {
  const Box whole = box({0}, {8});
  EXPECT_EQ(fault_of(plans_of({8}, {{whole}, {whole, whole}})),
            "InvalidArgument: tensor 'w' of shape (8,): rank 1 has box (0,)+(8,) twice");
}

TEST(UniteSavePlans, BoxThatIsNone_IsRefused) {
  const std::string tail = " has no cells or does not lie in the tensor";
  EXPECT_EQ(fault_of(plans_of({4, 4}, {{}, {box({0, 0}, {0, 4})}})),
            "InvalidArgument: tensor 'w' of shape (4, 4): box (0, 0)+(0, 4) of rank 1" + tail);
  EXPECT_EQ(fault_of(plans_of({4, 4}, {{box({3, 0}, {2, 4})}})),
            "InvalidArgument: tensor 'w' of shape (4, 4): box (3, 0)+(2, 4) of rank 0" + tail);
  EXPECT_EQ(fault_of(plans_of({4, 4}, {{box({-1, 0}, {2, 4})}})),
            "InvalidArgument: tensor 'w' of shape (4, 4): box (-1, 0)+(2, 4) of rank 0" + tail);
  EXPECT_EQ(fault_of(plans_of({4, 4}, {{box({0}, {4})}})),
            "InvalidArgument: tensor 'w' of shape (4, 4): box (0,)+(4,) of rank 0" + tail);
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(fault_of(plans_of({4}, {{box({1}, {huge})}})),
            "InvalidArgument: tensor 'w' of shape (4,): box (1,)+(9223372036854775807,) of rank 0" + tail);
}

TEST(UniteSavePlans, BoxesThatOverlap_AreRefusedWithTheirRanks) {
  const std::string fault = fault_of(plans_of({4, 4}, {{box({0, 0}, {2, 4})}, {box({1, 0}, {3, 4})}}));
  EXPECT_EQ(fault.substr(0, 76), "InvalidArgument: tensor 'w' of shape (4, 4): the ranks' boxes do not tile it");
  EXPECT_NE(fault.find("; rank 0 holds (0, 0)+(2, 4)"), std::string::npos) << fault;
  EXPECT_NE(fault.find("; rank 1 holds (1, 0)+(3, 4)"), std::string::npos) << fault;
}

TEST(UniteSavePlans, CellsThatNoRankHolds_AreRefused) {
  EXPECT_EQ(fault_of(plans_of({4, 4}, {{box({0, 0}, {2, 4})}, {box({3, 0}, {1, 4})}})),
            "InvalidArgument: tensor 'w' of shape (4, 4): the ranks' boxes do not tile it: no chunk holds cell (2, 0)");
  EXPECT_EQ(fault_of(plans_of({4}, {{}, {}})),
            "InvalidArgument: tensor 'w' of shape (4,): the ranks' boxes do not tile it: no chunk holds cell (0,)");
}

TEST(UniteSavePlans, ShapeWithoutSize_IsRefused) {
  EXPECT_NE(fault_of({of_tensors({f32("w", {int64_t{1} << 62, 4}, {})})}).find("tensor 'w'"), std::string::npos);
  EXPECT_NE(fault_of({of_tensors({f32("w", {-1}, {})})}).find("tensor 'w'"), std::string::npos);
}

TEST(UniteSavePlans, SubByteBoxThatFillsNoWholeBytes_IsRefused) {
  const PlannedTensor left{"q", DType::kF4, {6}, {box({0}, {3})}};
  const PlannedTensor right{"q", DType::kF4, {6}, {box({3}, {3})}};
  EXPECT_EQ(
      fault_of({of_tensors({left}), of_tensors({right})}),
      "InvalidArgument: tensor 'q' of shape (6,): box (0,)+(3,) of rank 0 has shape (3,) of F4, which takes 12 bits, "
      "but a tensor must fill whole bytes");
}

TEST(UniteSavePlans, StructuresThatDoNotFit_AreRefused) {
  SavePlan first;
  first.structure = ValueDict{};
  SavePlan second;
  second.structure = ValueList{};
  EXPECT_EQ(fault_of({first, second}),
            "InvalidArgument: the state dicts of rank 0 and rank 1 do not fit together: the whole is a dict on rank 0 "
            "but a list on rank 1");
}

double milliseconds_to_unite(const std::vector<SavePlan>& plans) {
  const auto start = Clock::now();
  const GlobalSavePlan global = unite_save_plans(plans);
  const std::chrono::duration<double, std::milli> time = Clock::now() - start;
  EXPECT_EQ(global.assigned.size(), plans.size());
  testing::Test::RecordProperty("milliseconds", std::to_string(time.count()));
  return time.count();
}

// The limits are many times what is needed; work that grows with the square of the ranks takes longer still.
TEST(UniteSavePlans, ManyRanksWithBoxesOfTheirOwn_TakeNoQuadraticTime) {
  std::vector<SavePlan> plans(1000);
  for (int64_t rank = 0; rank < 1000; ++rank) {
    for (int tensor = 0; tensor < 100; ++tensor) {
      plans[static_cast<size_t>(rank)].tensors.push_back(
          f32("model.layers." + std::to_string(tensor), {1000, 8}, {box({rank, 0}, {1, 8})}));
    }
  }
  EXPECT_LT(milliseconds_to_unite(plans), 3000);
}

TEST(UniteSavePlans, ManyTensorsOnFewRanks_AreQuick) {
  std::vector<SavePlan> plans(4);
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (int tensor = 0; tensor < 2000; ++tensor) {
      plans[static_cast<size_t>(rank)].tensors.push_back(
          f32("model.layers." + std::to_string(tensor), {8, 128}, {box({2 * rank, 0}, {2, 128})}));
    }
  }
  EXPECT_LT(milliseconds_to_unite(plans), 500);
}

SavePlan plan_of_everything() {
  SavePlan plan = of_tensors({f32("w", {4, 2}, {box({0, 0}, {2, 2}), box({3, 0}, {1, 2})}),
                              {"", DType::kU64, {}, {box({}, {})}},
                              {std::string("a\0b", 3), DType::kF4, {0, 7}, {}}});
  plan.values = {{"step", int64_t{7}}, {"betas", ValueTuple{{0.9, 0.999}}}};
  plan.structure = ValueDict{{{"w", "w"}}};
  return plan;
}

TEST(SavePlanCodec, PlanReadsBackEqual) {
  EXPECT_EQ(decode_save_plan(encode_save_plan(plan_of_everything())), plan_of_everything());
  EXPECT_EQ(decode_save_plan(encode_save_plan(SavePlan())), SavePlan());
}

TEST(SavePlanCodec, EveryCutText_IsRefused) {
  const std::string bytes = encode_save_plan(plan_of_everything());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string fault = error_of([&] { decode_save_plan(std::string_view(bytes).substr(0, size)); });
    EXPECT_EQ(fault.substr(0, 9), "Internal:") << size;
  }
  EXPECT_EQ(error_of([&] { decode_save_plan(bytes + "x"); }).substr(0, 9), "Internal:");
}

TEST(SavePlanCodec, UnknownDtype_IsRefused) {
  std::string bytes = encode_save_plan(of_tensors({f32("w", {1}, {})}));
  bytes.at(8 + 8 + 1) = '\x7F';  // behind the count of tensors and the name
  EXPECT_EQ(error_of([&] { decode_save_plan(bytes); }),
            "Internal: internal error: a message names the unknown dtype 127");
}

}  // namespace
}  // namespace hyper_parallel
