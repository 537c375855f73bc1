// x[i] of a tensor sharded by Shard(0): a ragged view of the row, on its owner alone.

#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

class SelectRow : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, SelectRow, ::testing::ValuesIn(unchecked_paths()), name_of);

/// [[1..4], [5..8], [9..12], [13..16]] on Shard(0).
DTensor numbers(const ThreadRank& self) {
  return laid_out(at::arange(1, 17, at::kFloat).view({4, 4}), MeshCommunicator(self.group, DeviceMesh({self.size})),
                  "S(0)");
}

TEST_P(SelectRow, EveryRow_LiesOnItsOwnerAsOneUnit) {
  for (const Shape& shape : {Shape{5, 3}, Shape{6, 2, 2}, Shape{2, 0}, Shape{1, 4}}) {
    run(4, [&](const ThreadRank& self) {
      const at::Tensor whole = counted(shape);
      const MeshCommunicator flat(self.group, DeviceMesh({4}));
      const MeshCommunicator square(self.group, DeviceMesh({2, 2}, {"a", "b"}, {3, 1, 0, 2}));
      for (const DTensor& x :
           {laid_out(whole, flat, "S(0)"), laid_out(whole, square, "S(0), R"), laid_out(whole, square, "R, S(0)"),
            laid_out(whole, square, str_cat("R, S(-", shape.size(), ")"))}) {
        for (int64_t row = 0; row < shape[0]; ++row) {
          const DTensor y = x[row];
          EXPECT_EQ(y.shape(), Shape(shape.begin() + 1, shape.end()));
          ASSERT_TRUE(y.layout().is_ragged());
          EXPECT_EQ(y.layout().ragged_shard()->placement.total_units(), 1);
          expect_equal(y.local(), part_of(whole[row], y.layout(), self.rank));
          expect_equal(y.full_tensor(), whole[row]);
          expect_equal(x[row - shape[0]].local(), y.local());
        }
      }
    });
  }
}

TEST_P(SelectRow, Case29_InPlaceWrite_ChangesTheRowOnItsOwnerAndNothingElse) {
  run(2, [](const ThreadRank& self) {
    const auto sums_after_zeroing = [&](int64_t row) {
      const DTensor x = numbers(self);
      x[row].local().zero_();
      return x.full_tensor().sum(1);
    };
    expect_equal(sums_after_zeroing(2), floats({10, 26, 0, 58}));
    expect_equal(sums_after_zeroing(0), floats({0, 26, 42, 58}));
    expect_equal(sums_after_zeroing(-1), floats({10, 26, 42, 0}));
    expect_equal(numbers(self)[2].local(), self.rank == 0 ? floats({}) : floats({9, 10, 11, 12}));
  });
}

TEST_P(SelectRow, Gradient_FillsTheRowAndIsZeroOnEveryOtherRank) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    const at::Tensor weight = counted({3}, 1, 5);
    for (const int64_t row : {0, 3, -1}) {
      const DTensor x = leaf(counted({5, 3}), mesh, "S(0)");
      const DTensor y = x[row];
      EXPECT_TRUE(y.requires_grad());
      EXPECT_FALSE(y.local().is_leaf());
      (y.full_tensor() * weight * (self.rank + 1)).sum().backward();
      at::Tensor expected = at::zeros({5, 3}, at::kDouble);
      expected[row] = weight * 6;
      expect_equal(x.local().grad(), part_of(expected, x.layout(), self.rank));
    }
  });
}

TEST_P(SelectRow, IndexOutOfRange_RaisesOnEveryRank) {
  for (const int64_t row : {4, -5}) {
    for (const std::string& text : errors(2, [&](const ThreadRank& self) { numbers(self)[row]; })) {
      EXPECT_EQ(text, str_cat("OutOfRange: x[i]: index ", row, " is out of range for 4 rows"));
    }
  }
}

TEST_P(SelectRow, OtherLayouts_RaiseOnEveryRank) {
  run(4, [](const ThreadRank& self) {
    const MeshCommunicator flat(self.group, DeviceMesh({4}));
    const MeshCommunicator square(self.group, DeviceMesh({2, 2}));
    const auto refused = [](const DTensor& x) { return error_of([&] { x[0]; }); };
    EXPECT_EQ(
        refused(laid_out(counted({4}), flat, "S(0)")),
        "Unimplemented: x[i] of a 1-D DTensor is not supported; redistribute it to Replicate(), or take to_local()");
    const std::string rule = "Unimplemented: x[i] takes a DTensor with one Shard(0)";
    for (const std::string text : {"S(1)", "P", "RaggedShard((0,), (1, 0, 0, 3))"}) {
      EXPECT_THAT(refused(laid_out(counted({4, 2}), flat, text)),
                  ::testing::StartsWith(rule + " and Replicate() beside, not ["));
    }
    for (const std::string text : {"S(0), S(1)", "S(0), S(0)", "S(0), P"}) {
      EXPECT_THAT(refused(laid_out(counted({4, 2}), square, text)),
                  ::testing::StartsWith(rule + " and Replicate() beside, not ["));
    }
    EXPECT_EQ(refused(laid_out(counted({4, 2}), flat, "R")),
              rule + ", not [Replicate()]; take to_local()[i] of a replicated one");
    EXPECT_THAT(refused(laid_out(counted({}), flat, "R")), ::testing::StartsWith("OutOfRange: x[i] of a 0-D DTensor"));
  });
}

TEST_P(SelectRow, RowOfARow_IsRefusedBecauseItIsRagged) {
  run(2, [](const ThreadRank& self) {
    const DTensor x = laid_out(counted({4, 3, 2}), MeshCommunicator(self.group, DeviceMesh({2})), "S(0)");
    EXPECT_THAT(error_of([&] { x[1][0]; }),
                ::testing::StartsWith("Unimplemented: x[i] takes a DTensor with one Shard(0)"));
  });
}

TEST_P(SelectRow, RowThatIsNotContiguous_RaisesOnItsOwner) {
  const auto texts = errors(2, [](const ThreadRank& self) {
    const at::Tensor strided = at::ones({3, 2}).t();
    const DTensor x =
        DTensor::from_local(strided, MeshCommunicator(self.group, DeviceMesh({2})), {Shard(0)}, Shape{4, 3});
    x[3];
  });
  EXPECT_EQ(texts[0], "no error");
  EXPECT_EQ(texts[1], "InvalidArgument: x[i]: the rows of this rank's local tensor are not contiguous, strides (1, 2)");
}

}  // namespace
}  // namespace hyper_parallel::test
