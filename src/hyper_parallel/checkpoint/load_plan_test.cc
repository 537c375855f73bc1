#include "hyper_parallel/checkpoint/load_plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "tests/support/cells.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

Box box(Dims offsets, Dims sizes) { return {std::move(offsets), std::move(sizes)}; }

// A tensor whose chunks lie one after the other in file 0.
StoredTensor stored(std::string name, DType dtype, const Dims& shape, const std::vector<Box>& chunks) {
  StoredTensor tensor(std::move(name), dtype, shape);
  int64_t begin = 0;
  for (const Box& chunk : chunks) {
    const int64_t bytes = chunk.numel() * bits_per_element(dtype) / 8;
    tensor.add_chunk(chunk, 0, begin, "", std::vector<uint32_t>(static_cast<size_t>(block_count(bytes))));
    begin += bytes;
  }
  return tensor;
}

CheckpointMetadata metadata_of(std::vector<StoredTensor> tensors, std::vector<NamedValue> values = {}) {
  CheckpointParts parts;
  parts.save_id = "0123456789abcdef";
  parts.files = {{"data", int64_t{1} << 40}};
  parts.tensors = std::move(tensors);
  parts.values = std::move(values);
  return CheckpointMetadata(std::move(parts));
}

// 'w' of shape (4, 6), in two halves of rows.
CheckpointMetadata two_halves() {
  return metadata_of({stored("w", DType::kF32, {4, 6}, {box({0, 0}, {2, 6}), box({2, 0}, {2, 6})})}, {{"lr", 0.5}});
}

LoadTarget target_of(std::string name, DType dtype, Dims shape) {
  Region region = region_of(whole_box(shape));
  return load_target(std::move(name), dtype, std::move(shape), region);
}

std::string fault_of(const LoadTarget& target, const LoadOptions& options = {}) {
  return error_of([&] { plan_load(two_halves(), {target}, options); });
}

TEST(PlanLoad, Target_GetsTheOverlapsOfChunksAndBoxes) {
  // Cells [4, 15): (0, 4)+(1, 2), (1, 0)+(1, 6), (2, 0)+(1, 3).
  const LoadTarget target = load_target("w", DType::kF32, {4, 6}, Region{whole_box({4, 6}), {4, 15}});
  const LoadPlan plan = plan_load(two_halves(), {target}, {});
  EXPECT_EQ(plan.targets, std::vector<LoadTarget>{target});
  const std::vector<ReadItem> expected = {
      {0, 0, 0, 0, box({0, 4}, {1, 2})}, {0, 1, 0, 0, box({1, 0}, {1, 6})}, {0, 2, 0, 1, box({2, 0}, {1, 3})}};
  EXPECT_EQ(plan.items, expected);
}

TEST(PlanLoad, Views_PlaceTheCells) {
  const LoadTarget target = load_target("w", DType::kF32, {4, 6}, Region{whole_box({4, 6}), {4, 15}});
  const LoadPlan plan = plan_load(two_halves(), {target}, {});
  EXPECT_EQ(view_in_chunk(plan.items[0], box({0, 0}, {2, 6})), run_view(4, 2));
  EXPECT_EQ(view_in_target(plan.items[0], target), run_view(0, 2));
  EXPECT_EQ(view_in_chunk(plan.items[1], box({0, 0}, {2, 6})), run_view(6, 6));
  EXPECT_EQ(view_in_target(plan.items[1], target), run_view(2, 6));
  EXPECT_EQ(view_in_chunk(plan.items[2], box({2, 0}, {2, 6})), run_view(0, 3));
  EXPECT_EQ(view_in_target(plan.items[2], target), run_view(8, 3));
  // A block inside both: rows 1 and 2, columns 2 to 4.
  const ReadItem item{0, 0, 0, 0, box({1, 2}, {2, 3})};
  const LoadTarget columns{"w", DType::kF32, {4, 6}, {box({0, 2}, {4, 4})}};
  EXPECT_EQ(view_in_chunk(item, box({1, 0}, {3, 6})), (StridedView{2, {2, 3}, {6, 1}}));
  EXPECT_EQ(view_in_target(item, columns), (StridedView{4, {2, 3}, {4, 1}}));
}

TEST(PlanLoad, Items_StandInTheOrderOfTheDisk) {
  StoredTensor late("a", DType::kU8, {4});
  late.add_chunk(box({2}, {2}), 1, 0, "", std::vector<uint32_t>(1));
  late.add_chunk(box({0}, {2}), 0, 50, "", std::vector<uint32_t>(1));
  StoredTensor early("b", DType::kU8, {2});
  early.add_chunk(box({0}, {2}), 0, 10, "", std::vector<uint32_t>(1));
  CheckpointParts parts{"0123456789abcdef", {{"d0", 100}, {"d1", 100}}, {late, early}, {}, {}};
  const LoadTarget halves{"a", DType::kU8, {4}, {box({1}, {3}), box({0}, {1})}};
  const LoadPlan plan = plan_load(CheckpointMetadata(std::move(parts)), {halves, target_of("b", DType::kU8, {2})}, {});
  const std::vector<ReadItem> expected = {{1, 0, 1, 0, box({0}, {2})},
                                          {0, 1, 0, 1, box({0}, {1})},
                                          {0, 0, 0, 1, box({1}, {1})},
                                          {0, 0, 0, 0, box({2}, {2})}};
  EXPECT_EQ(plan.items, expected);
}

TEST(PlanLoad, EmptyShareAndTensorWithoutCells_HaveNoItems) {
  const CheckpointMetadata metadata =
      metadata_of({stored("e", DType::kF32, {0, 3}, {}), stored("w", DType::kF32, {2}, {box({0}, {2})})});
  const LoadTarget empty_share{"w", DType::kF32, {2}, {}};
  EXPECT_TRUE(plan_load(metadata, {target_of("e", DType::kF32, {0, 3}), empty_share}, {}).items.empty());
  EXPECT_TRUE(plan_load(metadata, {}, {}).items.empty());
}

TEST(PlanLoad, Scalar_IsOneItem) {
  const CheckpointMetadata metadata = metadata_of({stored("s", DType::kF64, {}, {box({}, {})})});
  const LoadPlan plan = plan_load(metadata, {target_of("s", DType::kF64, {})}, {});
  ASSERT_EQ(plan.items.size(), 1U);
  EXPECT_EQ(view_in_chunk(plan.items[0], box({}, {})), run_view(0, 1));
  EXPECT_EQ(view_in_target(plan.items[0], plan.targets[0]), run_view(0, 1));
}

// Boxes so many that an index is used: each cell of the target comes from its place in its chunk, once.
TEST(PlanLoad, ManyChunksAndBoxes_CoverEachCellOnce) {
  const Dims shape{12, 15};
  std::vector<Box> chunks;
  for (int64_t row = 0; row < 12; row += 2) {
    for (int64_t column = 0; column < 15; column += 3) chunks.push_back(box({row, column}, {2, 3}));
  }
  LoadTarget target{"w", DType::kU8, shape, {}};
  for (int64_t column = 0; column < 15; ++column) target.boxes.push_back(box({0, column}, {12, 1}));
  const CheckpointMetadata metadata = metadata_of({stored("w", DType::kU8, shape, chunks)});
  const LoadPlan plan = plan_load(metadata, {target}, {});
  std::vector<int64_t> cells(180, -1);
  for (const ReadItem& item : plan.items) {
    const Box& chunk = chunks[static_cast<size_t>(item.chunk)];
    const auto sources = elements_of(view_in_chunk(item, chunk));
    const auto places = elements_of(view_in_target(item, target));
    const Cells in_chunk = cells_of(chunk, shape);
    ASSERT_EQ(sources.size(), places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(cells.at(static_cast<size_t>(places[i])), -1);
      cells.at(static_cast<size_t>(places[i])) = in_chunk.at(static_cast<size_t>(sources[i]));
    }
  }
  for (int64_t place = 0; place < 180; ++place) {
    EXPECT_EQ(cells[static_cast<size_t>(place)], place % 12 * 15 + place / 12);  // column after column
  }
}

TEST(PlanLoad, ManyChunksAndBoxes_TakeNoQuadraticTime) {
  constexpr int64_t kCount = 50'000;
  std::vector<Box> columns;
  for (int64_t column = 0; column < kCount; ++column) columns.push_back(box({0, column}, {2, 1}));
  const CheckpointMetadata metadata = metadata_of({stored("w", DType::kU8, {2, kCount}, columns)});
  const LoadTarget target{"w", DType::kU8, {2, kCount}, columns};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(plan_load(metadata, {target}, {}).items.size(), static_cast<size_t>(kCount));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

TEST(PlanLoad, MissingTarget_IsRefusedUnlessAllowed) {
  EXPECT_EQ(
      fault_of(target_of("c", DType::kF32, {2})),
      "InvalidArgument: the checkpoint does not hold 'c'; entries in allow_missing may be absent and stay as they "
      "are");
  std::vector<LoadTarget> many;
  for (int i = 0; i < 12; ++i) many.push_back(target_of(std::to_string(i), DType::kF32, {2}));
  EXPECT_EQ(
      error_of([&] { plan_load(two_halves(), many, {}); }),
      "InvalidArgument: the checkpoint does not hold '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' and 2 more; "
      "entries in allow_missing may be absent and stay as they are");
  LoadOptions options;
  options.allow_missing = {"[0-9]*"};
  const LoadPlan plan = plan_load(two_halves(), many, options);
  EXPECT_EQ(plan.targets.size(), 12U);
  EXPECT_TRUE(plan.items.empty());
}

TEST(PlanLoad, TargetStoredAsAValue_IsRefusedEvenIfMissingIsAllowed) {
  LoadOptions options;
  options.allow_missing = {"*"};
  EXPECT_EQ(fault_of(target_of("lr", DType::kF32, {2}), options),
            "InvalidArgument: 'lr' is stored as a value, but wanted as a tensor F32 (2,)");
}

TEST(PlanLoad, AnotherShape_IsRefused) {
  for (const Dims& shape : {Dims{6, 4}, Dims{4, 7}, Dims{1, 6}, Dims{24}, Dims{}}) {
    EXPECT_EQ(fault_of(target_of("w", DType::kF32, shape)),
              str_cat("InvalidArgument: tensor 'w' is stored as F32 (4, 6), but wanted as F32 ", tuple_text(shape),
                      "; a load never changes a shape"));
  }
}

TEST(PlanLoad, AnotherDtype_IsRefusedUnlessAllowed) {
  EXPECT_EQ(fault_of(target_of("w", DType::kBF16, {4, 6})),
            "InvalidArgument: tensor 'w' is stored as F32, but wanted as BF16; entries in allow_cast are converted");
  LoadOptions options;
  options.allow_cast = {"w"};
  EXPECT_EQ(plan_load(two_halves(), {target_of("w", DType::kBF16, {4, 6})}, options).items.size(), 2U);
}

TEST(PlanLoad, BoxThatIsNone_IsRefused) {
  for (const Box& bad : {box({3, 0}, {2, 6}), box({-1, 0}, {1, 6}), box({0, 0}, {0, 6}), box({0}, {4})}) {
    EXPECT_EQ(fault_of({"w", DType::kF32, {4, 6}, {bad}}),
              str_cat("InvalidArgument: tensor 'w' of shape (4, 6): the wanted box ", to_string(bad),
                      " has no cells or does not lie in the tensor"));
  }
}

TEST(Allows, NamesAndPatterns_Match) {
  EXPECT_TRUE(allows({"a", "optimizer.*"}, "optimizer.state.0"));
  EXPECT_TRUE(allows({"layer[0].w"}, "layer[0].w"));  // as it stands, though no match as a pattern
  EXPECT_TRUE(allows({"layer[01].?"}, "layer1.w"));
  EXPECT_FALSE(allows({}, "a"));
  EXPECT_FALSE(allows({"optimizer.*"}, "optimizer"));
  EXPECT_FALSE(allows({"a"}, std::string_view("a\0b", 3)));
  EXPECT_FALSE(allows({"*"}, std::string_view("a\0b", 3)));
  EXPECT_TRUE(allows({std::string("a\0b", 3)}, std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace hyper_parallel
