#include "hyper_parallel/checkpoint/written_parts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

const Box kLeft{{0}, {4}};
const Box kRight{{4}, {4}};

StoredTensor stored(const std::string& name, const Dims& shape, const std::vector<Box>& boxes, int64_t file = 0) {
  StoredTensor tensor(name, DType::kU8, shape);
  for (size_t i = 0; i < boxes.size(); ++i) {
    tensor.add_chunk(boxes[i], file, static_cast<int64_t>(i) * 4, "", std::vector<uint32_t>(1));
  }
  return tensor;
}

CheckpointParts parts_of(std::vector<StoredTensor> tensors) {
  CheckpointParts parts;
  parts.files = {{"d", 100}};
  parts.tensors = std::move(tensors);
  return parts;
}

SavePlan plan_of(std::vector<Box> boxes) { return {{{"w", DType::kU8, {8}, std::move(boxes)}}, {}, {}}; }

std::string fault_of(const CheckpointParts& parts, const SavePlan& plan) {
  return error_of([&] { checked_parts(parts, plan); });
}

TEST(CheckedParts, BoxesInAnyOrder_AreRight) {
  EXPECT_EQ(fault_of(parts_of({stored("w", {8}, {kLeft, kRight})}), plan_of({kLeft, kRight})), "no error");
  EXPECT_EQ(fault_of(parts_of({stored("w", {8}, {kRight, kLeft})}), plan_of({kLeft, kRight})), "no error");
  EXPECT_EQ(fault_of(parts_of({}), {}), "no error");
}

TEST(CheckedParts, TensorWithoutBoxes_IsAddedWhereItIsMissing) {
  const SavePlan plan{{{"e", DType::kU8, {0, 3}, {}}}, {}, {}};
  EXPECT_EQ(checked_parts(parts_of({}), plan).tensors, std::vector<StoredTensor>{stored("e", {0, 3}, {})});
  EXPECT_EQ(checked_parts(parts_of({stored("e", {0, 3}, {})}), plan).tensors.size(), 1U);
}

TEST(CheckedParts, OtherBoxes_AreABugOfTheStorage) {
  const std::string told = " chunks of tensor 'w' as U8 (8,), but was told to write 2 as U8 (8,), each exactly once";
  EXPECT_EQ(fault_of(parts_of({stored("w", {8}, {kLeft})}), plan_of({kLeft, kRight})),
            "Internal: the storage wrote 1" + told);
  EXPECT_EQ(fault_of(parts_of({stored("w", {8}, {kLeft, kLeft})}), plan_of({kLeft, kRight})),
            "Internal: the storage wrote 2" + told);
  EXPECT_EQ(fault_of(parts_of({stored("w", {9}, {kLeft, kRight})}), plan_of({kLeft, kRight})),
            "Internal: the storage wrote 2 chunks of tensor 'w' as U8 (9,), but was told to write 2 as U8 (8,), each "
            "exactly once");
}

TEST(CheckedParts, MissingFurtherOrRepeatedTensors_AreABugOfTheStorage) {
  EXPECT_EQ(fault_of(parts_of({}), plan_of({kLeft})), "Internal: the storage did not write tensor 'w'");
  EXPECT_EQ(fault_of(parts_of({stored("v", {8}, {kLeft})}), {}),
            "Internal: the storage wrote tensor 'v', which it was not told to write");
  const StoredTensor tensor = stored("w", {8}, {kLeft});
  EXPECT_EQ(fault_of(parts_of({tensor, tensor}), plan_of({kLeft})), "Internal: the storage named tensor 'w' twice");
}

TEST(CheckedParts, ChunkInAFileThatIsNone_IsABugOfTheStorage) {
  EXPECT_EQ(fault_of(parts_of({stored("w", {8}, {kLeft}, 1)}), plan_of({kLeft})),
            "Internal: the storage put a chunk of tensor 'w' into file number 1 of 1");
}

TEST(UniteParts, FilesAreSortedAndChunksFollowThem) {
  CheckpointParts first = parts_of({stored("w", {8}, {kLeft}, 1)});
  first.files = {{"z", 10}, {"m", 20}};
  CheckpointParts second = parts_of({stored("w", {8}, {kRight}), stored("v", {4}, {kLeft})});
  second.files = {{"a", 30}};
  const CheckpointParts united = unite_parts({first, CheckpointParts(), second});
  EXPECT_EQ(united.files, (std::vector<StoredFile>{{"a", 30}, {"m", 20}, {"z", 10}}));
  ASSERT_EQ(united.tensors.size(), 2U);
  EXPECT_EQ(united.tensors[0].name(), "w");
  EXPECT_EQ(united.tensors[0].chunk(0).file, 1);
  EXPECT_EQ(united.tensors[0].chunk(0).box, kLeft);
  EXPECT_EQ(united.tensors[0].chunk(1).file, 0);
  EXPECT_EQ(united.tensors[0].chunk(1).box, kRight);
  EXPECT_EQ(united.tensors[1].name(), "v");
}

TEST(UniteParts, FileOfSeveralRanks_IsOne) {
  const CheckpointParts part = parts_of({});
  EXPECT_EQ(unite_parts({part, part}).files.size(), 1U);
  CheckpointParts longer = part;
  longer.files[0].bytes = 101;
  EXPECT_EQ(error_of([&] { unite_parts({part, longer}); }), "Internal: ranks gave file 'd' 100 and 101 bytes");
}

TEST(UniteParts, TensorOfUnlikeShapes_IsRefused) {
  EXPECT_EQ(
      error_of([&] { unite_parts({parts_of({stored("w", {8}, {kLeft})}), parts_of({stored("w", {9}, {kLeft})})}); }),
      "Internal: ranks wrote tensor 'w' as U8 (8,) and as U8 (9,)");
}

TEST(UniteParts, Nothing_IsNothing) {
  EXPECT_TRUE(unite_parts({}).tensors.empty());
  EXPECT_TRUE(unite_parts({CheckpointParts(), CheckpointParts()}).files.empty());
}

}  // namespace
}  // namespace hyper_parallel
