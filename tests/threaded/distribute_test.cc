// `distribute`: from a whole tensor, held by all ranks or by one, to the ranks' parts.

#include "hyper_parallel/torch/counting_backend.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

struct Table {
  Shape mesh;
  Shape shape;
  std::vector<std::string> layouts;
};

const std::vector<Table> kTables = {
    {{1}, {3, 2}, {"R", "S(0)", "RaggedShard((0,), (3,))"}},
    {{2},
     {6, 4},
     {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 2))", "RaggedShard((0,), (0, 1))", "RaggedShard((0,), (6, 0))"}},
    {{2}, {0, 4}, {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 1))"}},
    {{2}, {4, 0}, {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 3))"}},
    {{3}, {5, 3}, {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 0, 4))", "RaggedShard((0, 1), (4, 4, 7))"}},
    {{2, 2},
     {5, 3},
     {"R, R", "S(0), R", "R, S(1)", "S(0), S(0)", "S(1), S(0)", "R, RaggedShard((0,), (2, 3))",
      "RaggedShard((0, 1), (4, 11)), R", "R, RaggedShard((0,), (0, 1))", "RaggedShard((0,), (1, 0)), R"}},
};

class Distribute : public PathTest {};
class DistributeChecked : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, Distribute, ::testing::ValuesIn(unchecked_paths()), name_of);
INSTANTIATE_TEST_SUITE_P(Paths, DistributeChecked, ::testing::ValuesIn(checked_paths()), name_of);

TEST_P(Distribute, WithoutSource_SlicesWhatTheRankHoldsIntoItsOwnStorage) {
  for (const Table& table : kTables) {
    run(static_cast<int>(DeviceMesh(table.mesh).size()), [&](const ThreadRank& self) {
      const auto [group, counters] = wrap_counting(self.group);
      const MeshCommunicator mesh(group, DeviceMesh(table.mesh));
      const at::Tensor whole = counted(table.shape);
      for (const std::string& text : table.layouts) {
        SCOPED_TRACE(str_cat(tuple_text(table.shape), ": ", text));
        const DTensor d = distribute(whole, mesh, parse_placements(text));
        expect_equal(d.local(), part_of(whole, d.layout(), self.rank));
        EXPECT_EQ(d.shape(), table.shape);
        d.local().fill_(-1);
        expect_equal(whole, counted(table.shape));
      }
      EXPECT_EQ(counters->total().calls, 0);
    });
  }
}

TEST_P(Distribute, WithSource_OnlyTheSourcesValuesMatter) {
  for (const Table& table : kTables) {
    const DeviceMesh over(table.mesh);
    run(static_cast<int>(over.size()), [&](const ThreadRank& self) {
      const MeshCommunicator mesh(self.group, over);
      for (const std::string& text : table.layouts) {
        for (int64_t source = 0; source < table.mesh[0]; ++source) {
          SCOPED_TRACE(str_cat(tuple_text(table.shape), ": ", text, " from ", source, ", rank ", self.rank));
          // Every rank's values are its own; the expected ones are those of the holder in its group.
          const DTensor d = distribute(counted(table.shape, 1, 1000 * self.rank), mesh, parse_placements(text), source);
          Dims holder = *over.coordinate(self.rank);
          for (size_t dim = 0; dim < holder.size(); ++dim) {
            if (!d.layout().is_ragged() || d.layout().ragged_shard()->mesh_dim == static_cast<int64_t>(dim))
              holder[dim] = source;
          }
          const at::Tensor whole = counted(table.shape, 1, 1000 * static_cast<double>(over.rank_at(holder)));
          expect_equal(d.local(), part_of(whole, d.layout(), self.rank));
          d.local().fill_(-1);
        }
      }
    });
  }
}

TEST_P(Distribute, Result_IsALeafApartFromTheInputsGraph) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    for (const std::string text : {"R", "S(0)", "RaggedShard((0,), (0, 1))"}) {
      for (const std::optional<int64_t> source : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
        const at::Tensor x = counted({4}).requires_grad_();
        const DTensor d = distribute(x * 2, mesh, parse_placements(text), source);
        EXPECT_TRUE(d.local().is_leaf());
        EXPECT_TRUE(d.requires_grad());
        d.full_tensor().sum().backward();
        EXPECT_FALSE(x.grad().defined());
        EXPECT_FALSE(distribute(counted({4}), mesh, parse_placements(text), source).requires_grad());
      }
    }
  });
}

TEST_P(Distribute, Case07_SourceCountsInsideTheGroup) {
  run(4, [](const ThreadRank& self) {
    const auto rank = static_cast<size_t>(self.rank);
    const MeshCommunicator mesh(self.group, DeviceMesh({2, 2}, {"dp", "tp"}));
    const MeshCommunicator tp = mesh.sub_mesh({"tp"});
    const at::Tensor x = at::arange(4, at::kFloat) + 100 * self.rank;
    const std::vector<at::Tensor> shard{floats({100, 101}), floats({102, 103}), floats({300, 301}), floats({302, 303})};
    const std::vector<at::Tensor> ragged{floats({100}), floats({101, 102, 103}), floats({300}),
                                         floats({301, 302, 303})};
    expect_equal(distribute(x, tp, {Shard(0)}, 1).local(), shard[rank]);
    expect_equal(distribute(x, tp, parse_placements("RaggedShard((0,), (1, 3))"), 1).local(), ragged[rank]);
    const std::string rule = " is out of range for mesh dim 'tp' of size 2; it counts inside the group";
    EXPECT_EQ(error_of([&] { distribute(x, tp, {Shard(0)}, 2); }), "OutOfRange: distribute: source 2" + rule);
    EXPECT_EQ(error_of([&] { distribute(x, tp, parse_placements("RaggedShard((0,), (1, 3))"), -1); }),
              "OutOfRange: distribute: source -1" + rule);
  });
}

TEST_P(Distribute, Case08_RanksOutsideTheMesh_HoldNothingAndWaitForNobody) {
  run(4, [](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    const MeshCommunicator mesh(group, DeviceMesh({2}, {"m"}, {2, 3}));
    EXPECT_EQ(mesh.mesh().size(), 2);
    const at::Tensor x = at::arange(4, at::kFloat);
    for (const std::string text : {"S(0)", "RaggedShard((0,), (0, 4))", "RaggedShard((0,), (3, 1))", "R"}) {
      for (const std::optional<int64_t> source : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
        const DTensor d = distribute(x, mesh, parse_placements(text), source);
        expect_equal(d.local(), part_of(x, d.layout(), self.rank));
        EXPECT_EQ(d.shape(), Shape{4});
        if (self.rank >= 2) {
          expect_equal(d.full_tensor(), x);
        }
        EXPECT_EQ(d.redistribute({Replicate{}}).local().numel(), self.rank >= 2 ? 4 : 0);
      }
    }
    if (self.rank < 2) {
      EXPECT_EQ(counters->total().calls, 0);
    }
  });
}

TEST_P(Distribute, Case25_EveryRankEmpty_KeepsItsShapes) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const auto expect_shapes = [&](const Shape& shape, const std::string& text, const Shape& local) {
      for (const std::optional<int64_t> source : {std::optional<int64_t>(), std::optional<int64_t>(0)}) {
        const DTensor d = distribute(at::zeros(shape), mesh, parse_placements(text), source);
        EXPECT_EQ(d.local().sizes(), local) << text;
        EXPECT_EQ(d.full_tensor().sizes(), shape) << text;
      }
    };
    expect_shapes({0, 4}, "S(0)", {0, 4});
    expect_shapes({4, 0}, "S(0)", {2, 0});
    expect_shapes({4, 0}, "S(1)", {4, 0});
    expect_shapes({0, 4}, "RaggedShard((0,), (1, 1))", {0});
  });
}

TEST_P(Distribute, Case26_StridedInput_IsReadInRowMajorOrder) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const at::Tensor x = at::arange(12, at::kFloat).view({3, 4}).t();
    for (const std::optional<int64_t> source : {std::optional<int64_t>(), std::optional<int64_t>(0)}) {
      expect_equal(distribute(x, mesh, {Shard(0)}, source).local(),
                   (self.rank == 0 ? floats({0, 4, 8, 1, 5, 9}) : floats({2, 6, 10, 3, 7, 11})).view({2, 3}));
      const DTensor whole = distribute(x, mesh, {Replicate{}}, source);
      expect_equal(whole.local(), x);
      EXPECT_TRUE(whole.local().is_contiguous());
      expect_equal(distribute(x, mesh, parse_placements("RaggedShard((0, 1), (1, 3))"), source).local(),
                   self.rank == 0 ? floats({0, 4, 8}) : floats({1, 5, 9, 2, 6, 10, 3, 7, 11}));
    }
  });
}

TEST_P(Distribute, Case34_Scalar_IsReplicatedAndNeverSplit) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    for (const std::optional<int64_t> source : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
      const at::Tensor x = at::scalar_tensor(source ? 4. + self.rank : 5., at::kDouble);
      const DTensor d = distribute(x, mesh, {Replicate{}}, source);
      EXPECT_EQ(d.ndim(), 0);
      expect_equal(d.full_tensor(), at::scalar_tensor(5., at::kDouble));
    }
    const at::Tensor x = at::scalar_tensor(5., at::kDouble);
    EXPECT_THAT(error_of([&] { distribute(x, mesh, {Shard(0)}); }),
                ::testing::HasSubstr("OutOfRange: Shard(0) is out of range for a tensor of 0 dims"));
    EXPECT_THAT(error_of([&] { distribute(x, mesh, parse_placements("RaggedShard((0,), (1, 1))")); }),
                ::testing::StartsWith("InvalidArgument: "));
  });
}

TEST_P(Distribute, WrongArguments_AreRefusedOnEveryRank) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const at::Tensor x = counted({4});
    EXPECT_EQ(
        error_of([&] { distribute(x, mesh, {Partial()}); }),
        "InvalidArgument: distribute: placements [Partial(sum)] hold Partial, but a whole tensor is no share of a "
        "pending reduction");
    EXPECT_EQ(error_of([&] { distribute(at::Tensor(), mesh, {Replicate{}}); }),
              "Type: distribute: tensor is undefined");
    EXPECT_THAT(error_of([&] { distribute(x, mesh, {Replicate{}, Replicate{}}); }),
                ::testing::StartsWith("InvalidArgument: "));
    EXPECT_THAT(error_of([&] { distribute(x, mesh, parse_placements("RaggedShard((0,), (1, 2))"), 0); }),
                ::testing::StartsWith("InvalidArgument: "));
  });
}

TEST_P(DistributeChecked, UnlikeShapesDtypesOrSources_RaiseOnEveryRankWithBothSides) {
  const auto texts_of = [&](const std::function<void(const MeshCommunicator&, int)>& call) {
    return errors(3, [&](const ThreadRank& self) { call(MeshCommunicator(self.group, DeviceMesh({3})), self.rank); });
  };
  const auto expect_sides = [](const std::vector<std::string>& texts, const std::string& left,
                               const std::string& right) {
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts[0]);
      EXPECT_THAT(text, ::testing::StartsWith(
                            "FailedPrecondition: distribute: the ranks of the group disagree about its arguments: "));
      EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr(left), ::testing::HasSubstr(right)));
    }
  };
  expect_sides(texts_of([](const MeshCommunicator& mesh, int rank) {
                 distribute(at::ones({rank == 1 ? 5 : 4}), mesh, {Shard(0)}, 0);
               }),
               "shape (4,) Float", "shape (5,) Float");
  expect_sides(texts_of([](const MeshCommunicator& mesh, int rank) {
                 distribute(at::ones({4}, rank == 1 ? at::kDouble : at::kFloat), mesh, {Shard(0)}, 0);
               }),
               "shape (4,) Float", "shape (4,) Double");
  expect_sides(
      texts_of([](const MeshCommunicator& mesh, int rank) { distribute(at::ones({4}), mesh, {Shard(0)}, rank / 2); }),
      "DeviceMesh((3,), ('dim_0',)) from 0", "DeviceMesh((3,), ('dim_0',)) from 1");
}

}  // namespace
}  // namespace hyper_parallel::test
