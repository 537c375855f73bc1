// `DTensor::from_local`: parts that do not fit are refused, and the logical shape is the same on every rank.

#include "hyper_parallel/torch/counting_backend.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

constexpr auto kShortTimeout = std::chrono::milliseconds(300);

DTensor wrap(const ThreadRank& self, const at::Tensor& local, const std::string& placements,
             const std::optional<Shape>& shape = std::nullopt) {
  return DTensor::from_local(local, MeshCommunicator(self.group, DeviceMesh({self.size}, {"dp"})),
                             parse_placements(placements), shape);
}

class FromLocal : public PathTest {};
class FromLocalChecked : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, FromLocal, ::testing::ValuesIn(unchecked_paths()), name_of);
INSTANTIATE_TEST_SUITE_P(Paths, FromLocalChecked, ::testing::ValuesIn(checked_paths()), name_of);

TEST_P(FromLocal, RightParts_AreWrappedWithoutACopyOrAMessage) {
  run(3, [](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    const MeshCommunicator mesh(group, DeviceMesh({3}));
    for (const std::string text : {"R", "S(0)", "S(-1)", "P(avg)", "RaggedShard((0,), (1, 0, 4))"}) {
      const at::Tensor local = part_of(counted({5, 3}), layout_on(mesh.mesh(), text), self.rank);
      const DTensor d = DTensor::from_local(local, mesh, parse_placements(text), Shape{5, 3});
      EXPECT_TRUE(d.local().is_same(local));
      EXPECT_EQ(d.shape(), (Shape{5, 3}));
      EXPECT_EQ(d.layout(), layout_on(mesh.mesh(), text).folded(2));
    }
    EXPECT_EQ(counters->total().calls, 0);
  });
}

TEST_P(FromLocal, Graph_RunsThroughTheLocalTensor) {
  run(2, [](const ThreadRank& self) {
    const at::Tensor x = at::ones({2}).requires_grad_();
    const DTensor d = wrap(self, x * 3, "S(0)", Shape{4});
    EXPECT_TRUE(d.requires_grad());
    (d.full_tensor() * at::arange(4)).sum().backward();
    expect_equal(x.grad(), self.rank == 0 ? floats({0, 6}) : floats({12, 18}));
  });
}

TEST_P(FromLocal, Case01_UnevenShardWithoutShape_HasOneShapeOnEveryRank) {
  run(4, [](const ThreadRank& self) {
    const at::Tensor g = at::arange(20, at::kFloat).view({10, 2});
    const at::Tensor chunk = g.narrow(0, 3 * self.rank, self.rank == 3 ? 1 : 3);
    for (const std::optional<Shape>& shape : {std::optional<Shape>(), std::optional<Shape>({10, 2})}) {
      const DTensor d = wrap(self, chunk, "S(0)", shape);
      EXPECT_EQ(d.shape(), (Shape{10, 2}));
      expect_equal(d.full_tensor(), g);
    }
    EXPECT_EQ(
        error_of([&] { wrap(self, chunk.reshape({-1}), "RaggedShard((0,), (3, 3, 3, 1))"); }),
        "InvalidArgument: from_local: shape is missing but with RaggedShard the logical shape cannot be told from the "
        "flat local tensor");
  });
}

TEST_P(FromLocal, WithoutShape_IsInferredForNestedAndPermutedMeshes) {
  run(4, [](const ThreadRank& self) {
    const DeviceMesh over({2, 2}, {"a", "b"}, {2, 0, 3, 1});
    const MeshCommunicator mesh(self.group, over);
    for (const std::string text : {"S(0), S(0)", "S(1), S(0)", "R, S(-1)", "S(0), P", "R, R", "S(1), S(1)"}) {
      for (const Shape& shape : {Shape{5, 3}, Shape{1, 2}, Shape{0, 3}}) {
        const at::Tensor local = part_of(counted(shape), layout_on(over, text), self.rank);
        EXPECT_EQ(DTensor::from_local(local, mesh, parse_placements(text)).shape(), shape) << text;
      }
    }
  });
}

TEST_P(FromLocal, Case01_LocalSizesThatNoShapeExplains_RaiseTheSameOnEveryRank) {
  const auto texts =
      errors(4, [](const ThreadRank& self) { wrap(self, at::ones({self.rank == 0 ? 1 : 3, 2}), "S(0)"); });
  for (const std::string& text : texts) {
    EXPECT_EQ(
        text,
        "InvalidArgument: from_local: rank 0 has a local of shape (1, 2) but owns (3, 2) of shape (10, 2), to which "
        "the local sizes add up, under [Shard(0)]");
  }
  const auto of_dims =
      errors(2, [](const ThreadRank& self) { wrap(self, self.rank == 0 ? at::ones({2}) : at::ones({2, 1}), "S(0)"); });
  for (const std::string& text : of_dims) {
    EXPECT_EQ(text, "InvalidArgument: from_local: the ranks' local tensors have 1 and 2 dims");
  }
}

TEST_P(FromLocal, Case02_SizesOffTheRule_RaiseOnTheirRanksAndTimeOutOnThePeers) {
  const auto texts = errors(
      4,
      [](const ThreadRank& self) {
        wrap(self, at::full({2, 2 + self.rank}, self.rank), "S(1)", Shape{2, 14}).full_tensor();
      },
      kShortTimeout);
  const auto wrong = [](int rank, int has, int owns) {
    return str_cat("InvalidArgument: local has shape (2, ", has, ") but rank ", rank, " owns (2, ", owns,
                   ") of shape (2, 14) under [Shard(1)]");
  };
  EXPECT_EQ(texts[0], wrong(0, 2, 4));
  EXPECT_EQ(texts[1], wrong(1, 3, 4));
  EXPECT_THAT(texts[2], ::testing::StartsWith("FailedPrecondition: "));
  EXPECT_EQ(texts[3], wrong(3, 5, 2));
}

TEST_P(FromLocalChecked, Case02_SizesOffTheRule_RaiseOnEveryRankAtOnce) {
  const auto texts = errors(
      4, [](const ThreadRank& self) { wrap(self, at::full({2, 2 + self.rank}, self.rank), "S(1)", Shape{2, 14}); });
  EXPECT_THAT(texts[0], ::testing::StartsWith("InvalidArgument: local has shape (2, 2) but rank 0 owns (2, 4)"));
  EXPECT_THAT(texts[2], ::testing::StartsWith(
                            "FailedPrecondition: from_local: refused on another rank: rank 0: local has shape (2, 2)"));
  for (const std::string named : {"rank 0: ", "rank 1: ", "rank 3: "})
    EXPECT_THAT(texts[2], ::testing::HasSubstr(named));
}

TEST_P(FromLocal, Case02_RaggedTwin_IsGathered) {
  run(4, [](const ThreadRank& self) {
    const at::Tensor g = at::arange(28, at::kFloat).view({14, 2});
    const int64_t begin[] = {0, 4, 10, 18, 28};
    const at::Tensor flat = g.view(-1).slice(0, begin[self.rank], begin[self.rank + 1]);
    expect_equal(wrap(self, flat, "RaggedShard((0,), (2, 3, 4, 5))", Shape{14, 2}).full_tensor(), g);
  });
}

TEST_P(FromLocal, Case26_RaggedLocalThatIsNoFlatRun_Raises) {
  const auto texts_of = [&](const at::Tensor& local) {
    return errors(2, [&](const ThreadRank& self) { wrap(self, local, "RaggedShard((0,), (1, 1))", Shape{4, 2}); });
  };
  const auto expect_all = [](const std::vector<std::string>& texts, const std::string& expected) {
    for (const std::string& text : texts) EXPECT_EQ(text.substr(0, expected.size()), expected);
  };
  expect_all(texts_of(at::ones({8}).slice(0, 0, 8, 2)),
             "InvalidArgument: local has stride 2 but with RaggedShard it must be contiguous");
  expect_all(texts_of(at::ones({2, 2})), "InvalidArgument: local has shape (2, 2) but with RaggedShard it must be 1-D");
  expect_all(texts_of(at::ones({3})), "InvalidArgument: local has 3 elements but rank ");
}

TEST_P(FromLocal, FaultsInGlobalFacts_RaiseOnEveryRank) {
  run(2, [](const ThreadRank& self) {
    const at::Tensor local = at::ones({2, 2});
    const auto refused = [&](const std::string& placements, const Shape& shape) {
      return error_of([&] { wrap(self, local, placements, shape); });
    };
    EXPECT_EQ(refused("R, R", {2, 2}),
              "InvalidArgument: placements [Replicate(), Replicate()] are 2 but the mesh has 1 dims (dp,)");
    EXPECT_THAT(refused("S(2)", {2, 2}), ::testing::StartsWith("OutOfRange: "));
    EXPECT_THAT(refused("S(0)", {4, -2}), ::testing::StartsWith("InvalidArgument: "));
    EXPECT_THAT(refused("RaggedShard((0,), (1, 1, 1))", {6, 2}), ::testing::HasSubstr("mesh dim 'dp' has size 2"));
    EXPECT_THAT(refused("RaggedShard((0,), (1, 2))", {4, 2}), ::testing::StartsWith("InvalidArgument: "));
    EXPECT_THAT(refused("RaggedShard((0, 1, 2), (1, 1))", {4, 2}),
                ::testing::HasSubstr("more than the tensor's 2 dims"));
    EXPECT_EQ(error_of([&] { wrap(self, at::Tensor(), "R", Shape{2}); }), "Type: from_local: local is undefined");
  });
}

TEST_P(FromLocal, RankOutsideTheMesh_HoldsNothingAndMustKnowTheShape) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}, {"dp"}, {2, 0}));
    const at::Tensor local = at::ones({self.rank == 1 ? 0 : 2});
    EXPECT_EQ(DTensor::from_local(local, mesh, {Shard(0)}, Shape{4}).shape(), Shape{4});
    if (self.rank == 1) {
      EXPECT_EQ(error_of([&] { DTensor::from_local(at::ones({1}), mesh, {Shard(0)}, Shape{4}); }),
                "InvalidArgument: local has 1 elements but rank 1 is outside the mesh and owns none");
      EXPECT_EQ(error_of([&] { DTensor::from_local(local, mesh, {Shard(0)}); }),
                "InvalidArgument: from_local: shape is missing but rank 1 is outside the mesh and cannot tell it");
    } else {
      EXPECT_EQ(DTensor::from_local(local, mesh, {Shard(0)}).shape(), Shape{4});
    }
  });
}

TEST_P(FromLocalChecked, UnlikeFacts_RaiseTheSameTextOnEveryRank) {
  const auto expect_sides = [&](const std::function<void(const ThreadRank&)>& call, const std::string& left,
                                const std::string& right) {
    const auto texts = errors(3, call);
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts[0]);
      EXPECT_THAT(text, ::testing::StartsWith(
                            "FailedPrecondition: from_local: the ranks of the group disagree about its arguments: "));
      EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr(left), ::testing::HasSubstr(right)));
    }
  };
  expect_sides(
      [](const ThreadRank& self) {
        wrap(self, at::ones({2}, self.rank == 1 ? at::kDouble : at::kFloat), "S(0)", Shape{6});
      },
      "(6,) Float without gradient", "(6,) Double without gradient");
  expect_sides(
      [](const ThreadRank& self) { wrap(self, at::ones({2}).requires_grad_(self.rank == 1), "S(0)", Shape{6}); },
      "(6,) Float without gradient", "(6,) Float with gradient");
  expect_sides([](const ThreadRank& self) { wrap(self, at::ones({2}), self.rank == 1 ? "P" : "R", Shape{2}); },
               "[Replicate()]", "[Partial(sum)]");
  // Replicas whose sizes differ would give one tensor two shapes.
  expect_sides([](const ThreadRank& self) { wrap(self, at::ones({self.rank == 1 ? 3 : 2}), "R"); }, "shape (2,) Float",
               "shape (3,) Float");
}

}  // namespace
}  // namespace hyper_parallel::test
