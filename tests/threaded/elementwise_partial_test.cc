// Operations on tensors whose reduction is pending: what commutes with it runs on the shares, the rest raises.

#include <gtest/gtest.h>

#include "tests/threaded/elementwise_support.h"

namespace hyper_parallel::test {
namespace {

using enum ErrorCode;

DTensor partial(const MeshCommunicator& mesh, const at::Tensor& share, ReduceOp op = ReduceOp::kSum) {
  return DTensor::from_local(share, mesh, {Partial(op)}, share.sizes().vec());
}

at::Tensor global_value(const DTensor& tensor) { return tensor.full_tensor(); }

/// "operation 'abs' with these arguments does not commute with the pending reduction of argument 'self', ...".
void expect_refused(const std::string& name, c10::ArrayRef<Argument> arguments, c10::ArrayRef<Keyword> keywords = {}) {
  expect_error(
      kInvalidArgument,
      str_cat("operation '", name, "' with these arguments does not commute with the pending reduction of argument '"),
      [&] { call(name, arguments, keywords); });
}

TEST(Case13_ElementwisePartial, InPlace_ChangesTheValueOrRaises) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const auto fresh = [&] { return partial(mesh, at::full({1}, 15 - 20 * static_cast<float>(mesh.rank()))); };
    const DTensor p = fresh();
    expect_error(
        kInvalidArgument,
        "operation 'clamp_' with these arguments does not commute with the pending reduction of argument 'self', whose "
        "placements are [Partial(sum)]; redistribute it to Replicate() first",
        [&] { clamp_(p, {}, 2); });
    expect_refused("add_", {p, 10});
    expect_refused("relu_", {p});
    EXPECT_EQ(global_value(p).item<float>(), 10);
    EXPECT_EQ(global_value(mul_(fresh(), 2)).item<float>(), 20);
    EXPECT_EQ(global_value(zero_(fresh())).item<float>(), 0);
    // Relabelling is no operation either.
    expect_error(kInvalidArgument, "Partial", [&] { fresh().redistribute({Partial(ReduceOp::kAvg)}); });
  });
}

TEST(Case14_ElementwisePartial, NonLinearOperations_RaiseAndLinearOnesAreRight) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const at::Tensor share = mesh.rank() == 0 ? at::tensor({3.0f, -5.0f}) : at::tensor({-4.0f, 2.0f});
    const DTensor p = partial(mesh, share);
    for (const char* name : {"abs", "relu", "square", "exp", "sigmoid", "sin", "cos"}) expect_refused(name, {p});
    expect_refused("mul", {p, p});
    expect_refused("div", {p, p});
    EXPECT_TRUE(at::equal(global_value(neg(p)), at::tensor({1.0f, 3.0f})));
    EXPECT_TRUE(at::equal(global_value(p + p), at::tensor({-2.0f, -6.0f})));
    EXPECT_EQ((p + p).placements(), p.placements());
  });
}

TEST(ElementwisePartial_SumAndAvg, CommuteWithWhatIsLinear) {
  on_mesh(3, [](const MeshCommunicator& mesh) {
    const at::Tensor share = at::arange(4, at::kFloat) * static_cast<double>(mesh.rank() - 1) + 1;
    const at::Tensor other = at::arange(4, at::kFloat) + static_cast<double>(mesh.rank());
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      const double ranks = op == ReduceOp::kSum ? 3 : 1;
      const at::Tensor a = at::ones({4}) * ranks;
      const at::Tensor b = (at::arange(4, at::kFloat) + 1) * ranks;
      const DTensor x = partial(mesh, share, op);
      const DTensor y = partial(mesh, other, op);
      expect_whole(sub(x, y, 2), a - 2 * b, "sub");
      expect_whole(rsub(x, y), b - a, "rsub");
      expect_whole(x * 3, a * 3, "mul");
      expect_whole(2 * y, b * 2, "rmul");
      expect_whole(y / 2, b / 2, "div");
      expect_whole(negative(y), -b, "negative");
      expect_whole(to(y, at::kDouble), b.to(at::kDouble), "to");
      expect_whole(add_(clone(x), y), a + b, "add_");
      const auto halves = call("_foreach_mul", {Argument::list(std::vector<DTensor>{x, y}), 0.5});
      expect_whole(halves[1], b / 2, "_foreach_mul");
    }
  });
}

TEST(ElementwisePartial_AnyReduction, CommutesWithCopiesAndZeros) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const at::Tensor share = at::full({3}, static_cast<float>(mesh.rank() + 1));
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
      const DTensor x = partial(mesh, share, op);
      const at::Tensor value = global_value(x);
      expect_whole(clone(x), value, "clone");
      expect_whole(call("detach", {x}).front(), value, "detach");
      expect_whole(to(x, at::kDouble), value.to(at::kDouble), "to");
      expect_whole(zeros_like(x), at::zeros({3}), "zeros_like");
      expect_whole(copy_(zeros_like(x), x), value, "copy_");
      EXPECT_EQ(empty_like(x).placements(), x.placements());
    }
    const DTensor most = partial(mesh, share, ReduceOp::kMax);
    expect_refused("neg", {most});
    expect_refused("add", {most, most});
    expect_refused("mul", {most, 2});
  });
}

TEST(ElementwisePartial_WhatIsUnsure, Raises) {
  on_mesh(2, [](const MeshCommunicator& mesh) {
    const DTensor x = partial(mesh, at::ones({3}));
    const DTensor whole = distribute(at::ones({3}), mesh, replicated());
    expect_refused("add", {x, 1});
    expect_refused("add", {x, at::ones({})});
    expect_refused("add", {x, whole});
    expect_refused("add", {whole, x});
    expect_refused("add", {x, partial(mesh, at::ones({3}), ReduceOp::kAvg)});
    expect_refused("add", {x, partial(mesh, at::ones({3}, at::kDouble))});
    expect_refused("copy_", {whole, x});
    expect_refused("copy_", {x, at::ones({})});
    expect_refused("mul", {x, at::ones({})});
    // A share that becomes infinite adds up to NaN with another sign: x * inf, x / 0.
    expect_refused("mul", {x, std::numeric_limits<double>::infinity()});
    expect_refused("add", {x, x}, {{"alpha", std::numeric_limits<double>::quiet_NaN()}});
    expect_refused("div", {x, 0});
    expect_refused("div", {x, 2}, {{"rounding_mode", "floor"}});
    expect_refused("rdiv", {x, 2});
    expect_refused("rpow", {x, 2});
    expect_refused("pow", {x, 1});
    expect_refused("to", {x, at::kHalf});
    expect_refused("to", {x, at::kLong});
    expect_refused("ones_like", {x});
    expect_refused("fill_", {x, 0});
    expect_refused("eq", {x, 0});
    // Integers wrap in the sum otherwise than in its double.
    const DTensor integers = partial(mesh, at::full({3}, 3, at::kLong));
    expect_refused("div", {integers, 2});
    expect_refused("mul", {integers, 0.5});
    expect_refused("to", {integers, at::kDouble});
    expect_whole(integers * 2, at::full({3}, 12, at::kLong), "integers by an integer");
    const std::vector<DTensor> list{x};
    expect_refused("_foreach_sqrt", {Argument::list(list)});
    expect_refused("_foreach_add_", {Argument::list(list), 1});
  });
}

TEST(ElementwisePartial_BesideShards, KeepsBothPlacements) {
  run_ranks(4, [](const ThreadRank& rank) {
    const MeshCommunicator grid(rank.group, DeviceMesh({2, 2}, {"dp", "tp"}));
    const int64_t column = rank.rank % 2;
    const DTensor x = DTensor::from_local(at::full({1, 2}, static_cast<float>(column + 1)), grid, {Partial(), Shard(0)},
                                          std::vector<int64_t>{2, 2});
    const at::Tensor expected = at::tensor({2.0f, 4.0f}).reshape({2, 1}).expand({2, 2}) * 2;
    expect_whole(x + x, expected, "sum");
    expect_refused("relu", {x});
  });
}

}  // namespace
}  // namespace hyper_parallel::test
