#include "hyper_parallel/tools/reshard_layout.h"

#include <gtest/gtest.h>

#include "hyper_parallel/checkpoint/save_plan.h"
#include "tests/support/expect_error.h"

namespace hyper_parallel {
namespace {

ReshardLayoutOptions options_of(int64_t ranks) {
  ReshardLayoutOptions options;
  options.ranks = ranks;
  return options;
}

StoredTensor tensor_of(const std::string& name, Dims shape) { return {name, DType::kF32, std::move(shape)}; }

/// Ranks and boxes as text: "0: (0,)+(2,); 1: (2,)+(1,)".
std::string boxes_text(const ReshardLayout& layout, const StoredTensor& tensor) {
  std::string text;
  for (const RankBoxes& of_rank : stored_boxes(layout, tensor)) {
    text += str_cat(text.empty() ? "" : "; ", of_rank.rank, ":");
    for (const Box& box : of_rank.boxes) text += " " + to_string(box);
  }
  return text;
}

TEST(ReshardLayout, Default_IsShardOfTheFirstDim) {
  const ReshardLayout layout = read_reshard_layout(options_of(4));
  EXPECT_EQ(layout.placement, Placement(Shard(0)));
  EXPECT_EQ(boxes_text(layout, tensor_of("w", {5})), "0: (0,)+(2,); 1: (2,)+(2,); 2: (4,)+(1,)");
  EXPECT_EQ(boxes_text(layout, tensor_of("w", {0})), "");
}

TEST(ReshardLayout, Units_AreARaggedShard_WithRepetitionAndDims) {
  ReshardLayoutOptions options = options_of(3);
  options.units = "1,0,2";
  EXPECT_EQ(boxes_text(read_reshard_layout(options), tensor_of("w", {3, 2})), "0: (0, 0)+(1, 2); 2: (1, 0)+(2, 2)");
  options.units = "1*2, 4";
  options.dims = "0,1";
  EXPECT_EQ(boxes_text(read_reshard_layout(options), tensor_of("w", {3, 2})),
            "0: (0, 0)+(1, 1); 1: (0, 1)+(1, 1); 2: (1, 0)+(2, 2)");
}

TEST(ReshardLayout, Shard_TakesAnyDim_FromTheEndToo) {
  ReshardLayoutOptions options = options_of(2);
  options.shard = -1;
  EXPECT_EQ(boxes_text(read_reshard_layout(options), tensor_of("w", {2, 3})), "0: (0, 0)+(2, 2); 1: (0, 2)+(2, 1)");
}

TEST(ReshardLayout, Replicate_IsStoredOnTheRankThatASaveChooses) {
  ReshardLayoutOptions options = options_of(5);
  options.replicate = true;
  const ReshardLayout layout = read_reshard_layout(options);
  for (const std::string name : {"w", "b", "encoder.0.weight", ""}) {
    const StoredTensor tensor = tensor_of(name, {2});
    std::vector<SavePlan> plans(5);
    for (SavePlan& plan : plans) plan.tensors = {planned_tensor(name, DType::kF32, {2}, region_of(whole_box({2})))};
    const GlobalSavePlan united = unite_save_plans(plans);
    std::string expected;
    for (size_t rank = 0; rank < 5; ++rank) {
      if (!united.assigned[rank].tensors.empty()) expected = str_cat(rank, ": (0,)+(2,)");
    }
    EXPECT_EQ(boxes_text(layout, tensor), expected);
  }
}

TEST(ReshardLayout, Misfit_IsAnErrorThatNamesTheTensor) {
  ReshardLayoutOptions options = options_of(2);
  expect_error(ErrorCode::kInvalidArgument,
               "; --fallback shard or --fallback replicate lays such tensors out otherwise",
               [&] { stored_boxes(read_reshard_layout(options), tensor_of("s", {})); });
  options.units = "1,2";
  expect_error(ErrorCode::kInvalidArgument,
               "tensor 'w': ", [&] { stored_boxes(read_reshard_layout(options), tensor_of("w", {4})); });
}

TEST(ReshardLayout, Fallback_LaysMisfitsOutOtherwise_AndNoOthers) {
  ReshardLayoutOptions options = options_of(2);
  options.units = "1,2";
  options.fallback = "shard";
  const ReshardLayout sharded = read_reshard_layout(options);
  EXPECT_EQ(boxes_text(sharded, tensor_of("w", {3})), "0: (0,)+(1,); 1: (1,)+(2,)");
  EXPECT_EQ(boxes_text(sharded, tensor_of("w", {4})), "0: (0,)+(2,); 1: (2,)+(2,)");
  EXPECT_EQ(stored_boxes(sharded, tensor_of("s", {})).size(), 1U);
  options.fallback = "replicate";
  EXPECT_EQ(stored_boxes(read_reshard_layout(options), tensor_of("w", {4})).size(), 1U);
}

TEST(ReshardLayout, Options_ThatMakeNoLayout_AreRefused) {
  const auto refused = [](const std::string& text, auto&& change) {
    ReshardLayoutOptions options = options_of(2);
    change(options);
    expect_error(ErrorCode::kInvalidArgument, text, [&] { read_reshard_layout(options); });
  };
  using Options = ReshardLayoutOptions;
  refused("--ranks is 0, but must be from 1 to 1048576", [](Options& o) { o.ranks = 0; });
  refused("--ranks is 1048577, but must be", [](Options& o) { o.ranks = 1048577; });
  refused("--units: 3 units for 2 ranks; each rank has one (--ranks)", [](Options& o) { o.units = "1,2,3"; });
  refused("--units: '1,x' is not a list of integers such as 1,2,0,5", [](Options& o) { o.units = "1,x"; });
  refused("--units: 'R)' is not a list of integers", [](Options& o) { o.units = "R)"; });
  refused("--units: ", [](Options& o) { o.units = "0,0"; });
  refused("--units: ", [](Options& o) { o.units = "-1,2"; });
  refused("--units: ", [](Options& o) { o.units = ""; });
  refused("--dims: '(0' is not a list of integers", [](Options& o) {
    o.units = "1,2";
    o.dims = "(0";
  });
  refused("--units: ", [](Options& o) {
    o.units = "1,2";
    o.dims = "1";
  });
  refused("--dims goes with --units", [](Options& o) { o.dims = "0"; });
  refused("--units, --shard and --replicate exclude one another", [](Options& o) {
    o.shard = 0;
    o.replicate = true;
  });
  refused("--fallback: 'none' is not one of shard, replicate", [](Options& o) { o.fallback = "none"; });
}

}  // namespace
}  // namespace hyper_parallel
