// What an elementwise operation refuses: with code and text, on every rank, before anything is computed.

#include <gtest/gtest.h>

#include "tests/threaded/elementwise_support.h"

namespace hyper_parallel::test {
namespace {

using enum ErrorCode;

TEST(ElementwiseRefusal_Names, OutsideTheTable_AreNamed) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, ragged({1, 2}));
    for (const char* name :
         {"sum", "mean", "view", "reshape", "flatten", "matmul", "norm", "softmax", "cumsum", "no_such"}) {
      expect_error(kUnimplemented,
                   str_cat("operation '", name,
                           "' is not supported on a ragged DTensor; redistribute to Replicate and leave by "
                           "full_tensor(), or take to_local()"),
                   [&] { call(name, {x}); });
    }
    const DTensor sharded = distribute(values(), mesh, {Shard(0)});
    expect_error(kUnimplemented, "operation 'histc' is not supported on a DTensor with placements [Shard(0)]",
                 [&] { call("histc", {sharded}); });
    // A ragged operand anywhere in the arguments decides.
    expect_error(kUnimplemented, "'stack' is not supported on a ragged DTensor",
                 [&] { call("stack", {Argument(Argument::List{sharded, x})}); });
    expect_error(kType, "operation 'sum' was given no DTensor", [&] { call("sum", {at::ones({2})}); });
  });
}

TEST(ElementwiseRefusal_RandomNumbers, HaveTheirOwnReason) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, ragged({1, 2}));
    for (const char* name :
         {"dropout", "dropout_", "bernoulli_", "normal", "random_", "rand_like", "randn_like", "rrelu"}) {
      expect_error(
          kUnimplemented,
          str_cat("operation '", name, "' draws random numbers, and equal seeds would give equal shares on all ranks"),
          [&] { call(name, {x}); });
    }
  });
}

TEST(ElementwiseRefusal_Out, IsNotSupported) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, ragged({1, 2}));
    expect_error(kUnimplemented, "operation 'add': argument 'out' is not supported on a DTensor",
                 [&] { call("add", {x, x}, {{"out", x}}); });
    expect_error(kUnimplemented, "operation 'rpow': argument 'out' is not supported",
                 [&] { call("rpow", {x, 2}, {{"out", x}}); });
  });
}

TEST(ElementwiseRefusal_PlainTensors, OfSeveralElements_AreRefused) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    // (3, 4) has as many elements as one rank's share, (6, 4) is the logical shape: neither is what it looks like.
    const DTensor x = distribute(values(), mesh, ragged({1, 1}));
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{12}, {6, 4}, {4}, {0}}) {
      expect_error(kType,
                   str_cat("operation 'mul': argument 'other' is a plain tensor of shape ", tuple_text(shape),
                           ", but beside a DTensor a plain tensor must have one element; distribute it with placements "
                           "[RaggedShard((0,), (1, 1))]"),
                   [&] { mul(x, at::ones(shape)); });
    }
    expect_error(
        kInvalidArgument,
        "argument 'other' is a plain tensor of shape (1, 1, 1), which has more dims than the DTensor of shape (6, 4)",
        [&] { mul(x, at::ones({1, 1, 1})); });
    expect_error(kType, "argument 'other' is an undefined tensor", [&] { mul(x, at::Tensor()); });
    expect_error(kType,
                 "operation 'add_': argument 'self' is written and is a plain tensor of shape (12,), but beside a "
                 "DTensor it must "
                 "be a DTensor",
                 [&] { call("add_", {at::ones({12}), x}); });
    expect_error(kType, "operation 'relu' was given no DTensor", [&] { call("relu", {at::ones({12})}); });
  });
}

TEST(Case31_ElementwiseRagged, UnlikeRunsOrShapes_RaiseOnAllRanks) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const auto make = [&](std::vector<int64_t> shape, std::vector<Placement> placements) {
      int64_t numel = 1;
      for (const int64_t size : shape) numel *= size;
      return distribute(at::arange(numel, at::kFloat).reshape(shape), mesh, std::move(placements));
    };
    const DTensor x = make({8}, ragged({1, 3}));
    expect_error(
        kInvalidArgument,
        "operation 'add': argument 'other' with placements [RaggedShard((0,), (3, 1))] lies on other ranks' runs of "
        "shape (8,) than [RaggedShard((0,), (1, 3))]",
        [&] { x + make({8}, ragged({3, 1})); });
    // Local sizes that happen to match.
    const DTensor flat = make({4}, ragged({1, 1}));
    expect_error(kInvalidArgument, "argument 'other' has shape (2, 2) but the ragged operand has (4,)",
                 [&] { flat + make({2, 2}, ragged({1, 1})); });
    expect_error(kInvalidArgument, "argument 'other' has shape (3, 4) but the ragged operand has (4, 3)",
                 [&] { make({4, 3}, ragged({2, 2})) + make({3, 4}, ragged({2, 2}, {0, 1})); });
    expect_error(kInvalidArgument, "argument 'other' has placements [Shard(0)] but beside a ragged operand",
                 [&] { flat + make({4}, {Shard(0)}); });
    expect_error(kInvalidArgument, "argument 'self' has placements [Shard(0)] but beside a ragged operand",
                 [&] { make({4}, {Shard(0)}) + flat; });
    expect_error(kInvalidArgument, "argument 'other' has shape (2, 4) but the ragged operand has (4,)",
                 [&] { flat + make({2, 4}, replicated()); });

    expect_whole(x + make({8}, ragged({2, 6})), 2 * at::arange(8, at::kFloat), "equal runs");
    EXPECT_EQ((x + make({8}, ragged({2, 6}))).placements(), x.placements());
    expect_whole(x + at::ones({1}), at::arange(1, 9, at::kFloat), "one element");
    expect_whole(x + make({8}, replicated()), 2 * at::arange(8, at::kFloat), "Replicate");
  });
}

TEST(ElementwiseRefusal_Meshes, UnlikeOnes_Raise) {
  run_ranks(2, [](const ThreadRank& rank) {
    const MeshCommunicator a(rank.group, DeviceMesh({2}, {"dp"}));
    const MeshCommunicator b(rank.group, DeviceMesh({2}, {"tp"}));
    const DTensor x = distribute(values(), a, ragged({1, 1}));
    expect_error(
        kInvalidArgument,
        "argument 'other' lies on DeviceMesh((2,), ('tp',)) but another operand on DeviceMesh((2,), ('dp',)); the "
        "operands' meshes must be equal",
        [&] { x + distribute(values(), b, ragged({1, 1})); });
    expect_error(kInvalidArgument, "meshes must be equal", [&] { x + distribute(values(), b, replicated()); });
  });
}

TEST(ElementwiseRefusal_MeshDims, RaggedOnAnother_Raises) {
  run_ranks(4, [](const ThreadRank& rank) {
    const MeshCommunicator grid(rank.group, DeviceMesh({2, 2}, {"dp", "tp"}));
    const DTensor x = distribute(values(), grid, {RaggedShard({0}, {1, 1}), Replicate{}});
    expect_error(kInvalidArgument, "lies on other ranks' runs",
                 [&] { x + distribute(values(), grid, {Replicate{}, RaggedShard({0}, {1, 1})}); });
  });
}

TEST(ElementwiseRefusal_InPlace, IntoATensorThatIsNotRagged_Raises) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, ragged({1, 1}));
    const DTensor whole = distribute(values(), mesh, replicated());
    expect_error(
        kInvalidArgument,
        "operation 'add_': argument 'self' is written, but its shape (6, 4) and placements [Replicate()] are not the "
        "result's: shape (6, 4), placements [RaggedShard((0,), (1, 1))]",
        [&] { add_(whole, x); });
    const std::string error = torch_error([&] { at::ones({}).add_(values()); });
    EXPECT_NE(error, "");
    EXPECT_EQ(torch_error(
                  [&] { add_(distribute(at::ones({}), mesh, replicated()), distribute(values(), mesh, {Shard(0)})); }),
              error);
    expect_whole(whole, values(), "the operand");
  });
}

TEST(ElementwiseRefusal_InPlace, ResultThatCannotBeCast_RaisesAsTorchOnEveryRank) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(at::kLong), mesh, ragged({1, 2, 0, 3}));
    const std::string error = torch_error([&] { values(at::kLong).add_(1.5); });
    EXPECT_NE(error, "");
    EXPECT_EQ(torch_error([&] { add_(x, 1.5); }), error);
    EXPECT_NE(torch_error([&] { sqrt_(x); }), "");
    expect_whole(x, values(at::kLong), "x");
  });
}

TEST(ElementwiseRefusal_IntegerDivisionByZero, RaisesOnRanksWithoutElementsToo) {
  on_mesh(4, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(at::kLong), mesh, ragged({1, 2, 0, 3}));
    for (const std::string_view mode : {"trunc", "floor"}) {
      EXPECT_EQ(torch_error([&] { div(x, 0, mode); }), "ZeroDivisionError");
      EXPECT_EQ(torch_error([&] { div(x, at::zeros({}, at::kLong), mode); }), "ZeroDivisionError");
      EXPECT_EQ(torch_error([&] { div_(x, 0, mode); }), "ZeroDivisionError");
    }
  });
}

TEST(Elementwise_NormalLayouts, ThatLieUnlike_AreAlignedAndBroadcast) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, {Shard(0)});
    for (const Placement& placement : {Placement(Shard(1)), Placement(Replicate())}) {
      expect_whole(x + distribute(values(), mesh, {placement}), values() + values(), "of one shape");
    }
    expect_whole(x + distribute(at::arange(4, at::kFloat), mesh, {Shard(0)}), values() + at::arange(4, at::kFloat),
                 "broadcast");
    EXPECT_EQ((x + distribute(at::ones({4}), mesh, replicated())).placements(), x.placements());
  });
}

TEST(ElementwiseRefusal_NormalLayouts, OfShapesThatDoNotBroadcast_AreRefused) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, {Shard(0)});
    expect_error(kInvalidArgument, "shape (3,) does not broadcast with (6, 4): sizes 3 and 4 meet",
                 [&] { x + distribute(at::ones({3}), mesh, {Shard(0)}); });
  });
}

TEST(Case34_Elementwise_ReplicateScalar, BesideShards_IsAdded) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor five = distribute(at::full({}, 5.0f), mesh, replicated());
    const DTensor x = distribute(at::arange(4, at::kFloat), mesh, {Shard(0)});
    expect_whole(x + five, at::arange(5, 9, at::kFloat), "x + five");
    expect_whole(five - x, 5 - at::arange(4, at::kFloat), "five - x");
    expect_whole(rpow(x, five), at::pow(5.0, at::arange(4, at::kFloat)), "five ** x");
    expect_whole(rpow(five, x), at::pow(at::arange(4, at::kFloat), 5), "x ** five");
    EXPECT_EQ((five - x).placements(), x.placements());
  });
}

TEST(ElementwiseRefusal_Arguments, ThatDoNotFit_AreNamed) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = distribute(values(), mesh, ragged({1, 2}));
    expect_error(kType, "operation 'add' has no argument 'beta'; it has 'alpha', 'other', 'self'",
                 [&] { call("add", {x, x}, {{"beta", 2}}); });
    expect_error(kType, "operation 'add': argument 'other' is the text 'two' but must be a number or a tensor",
                 [&] { call("add", {x, "two"}); });
    expect_error(kType, "operation 'add': argument 'alpha' is None but must be a number",
                 [&] { call("add", {x, x}, {{"alpha", std::nullopt}}); });
    expect_error(kType, "operation 'add': argument 'other' is missing", [&] { call("add", {x}); });
    expect_error(kType, "operation 'add': argument 'other' is given twice",
                 [&] { call("add", {x, x}, {{"other", x}}); });
    expect_error(kType, "operation 'relu' takes at most 1 positional arguments; more were given",
                 [&] { call("relu", {x, x}); });
    expect_error(kType, "operation 'maximum': argument 'other' is the number 2 but must be a tensor",
                 [&] { maximum(x, 2); });
    expect_error(kType, "operation 'to': argument 'dtype' is the number 6 but must be a dtype",
                 [&] { call("to", {x, 6}); });
    expect_error(kType, "operation 'where': argument 'self' is missing", [&] { call("where", {gt(x, 0)}); });
    expect_error(kType, "operation 'zeros_like': argument 'device' is the text 'cpu' but must be None",
                 [&] { call("zeros_like", {x}, {{"device", "cpu"}}); });
    expect_error(kType, "operation 'rdiv' takes 2 positional arguments and no keyword; 2 and 1 were given",
                 [&] { call("rdiv", {x, 2}, {{"rounding_mode", "floor"}}); });
    expect_error(kUnimplemented, "operation 'clone': argument 'memory_format' is the memory format ChannelsLast",
                 [&] { call("clone", {x}, {{"memory_format", at::MemoryFormat::ChannelsLast}}); });
    EXPECT_NE(torch_error([&] { div(x, x, "up"); }), "");
    EXPECT_NE(torch_error([&] { gelu(x, "erf"); }), "");
  });
}

}  // namespace
}  // namespace hyper_parallel::test
