// DTensors on several ranks: values, faults and checks that concern more than one of their operations.

#include "hyper_parallel/torch/counting_backend.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

constexpr auto kShortTimeout = std::chrono::milliseconds(300);

MeshCommunicator mesh_of(const ThreadRank& self) { return {self.group, DeviceMesh({self.size}, {"dp"})}; }

class DTensorOnRanks : public PathTest {};
class DTensorChecked : public PathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, DTensorOnRanks, ::testing::ValuesIn(all_paths()), name_of);
INSTANTIATE_TEST_SUITE_P(Paths, DTensorChecked, ::testing::ValuesIn(checked_paths()), name_of);

TEST_P(DTensorOnRanks, Case04_NestedUnevenShards_AreGatheredWhole) {
  run(4, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2, 2}, {"a", "b"}));
    const MeshCommunicator flat = mesh.with_mesh(mesh.mesh().flatten());
    const at::Tensor x = at::arange(15, at::kFloat).view({5, 3});
    const DTensor first = distribute(x, flat, {Shard(0)});
    expect_equal(first.full_tensor(), x);
    const DTensor d = distribute(x, mesh, {Shard(0), Shard(0)});
    const std::vector<std::pair<int64_t, int64_t>> rows{{0, 2}, {2, 1}, {3, 1}, {4, 1}};
    const auto [begin, count] = rows[static_cast<size_t>(self.rank)];
    expect_equal(d.local(), x.narrow(0, begin, count));
    expect_equal(d.full_tensor(), x);
    expect_equal(d.redistribute(flat.mesh(), {Shard(0)}).local(), first.local());
  });
}

TEST_P(DTensorOnRanks, Case05_EmptyAndNestedShards_LieWhereTheRuleSays) {
  run(4, [](const ThreadRank& self) {
    const auto rank = static_cast<size_t>(self.rank);
    const at::Tensor rows = at::arange(5, at::kLong).view({5, 1}).expand({5, 10});
    const std::vector<Shape> flat{{0, 1}, {2, 3}, {4}, {}};
    const DTensor d = distribute(rows, mesh_of(self), {Shard(0)});
    expect_equal(d.local(),
                 at::tensor(flat[rank], at::kLong).view({-1, 1}).expand({static_cast<int64_t>(flat[rank].size()), 10}));
    const std::vector<Shape> ragged{{}, {0, 1, 2}, {}, {3}};
    expect_equal(
        distribute(at::arange(4, at::kLong), mesh_of(self), parse_placements("RaggedShard((0,), (0, 3, 0, 1))"))
            .local(),
        at::tensor(ragged[rank], at::kLong));
  });
}

TEST_P(DTensorOnRanks, Case10_RedistributingAPartial_LeavesItsSourceAsItWas) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh = mesh_of(self);
    for (const std::string target : {"R", "RaggedShard((0,), (0, 1))", "RaggedShard((0,), (1, 0))", "S(0)"}) {
      const DTensor p = DTensor::from_local(floats({1.f + static_cast<float>(self.rank)}), mesh, {Partial()}, Shape{1});
      const DTensor q =
          DTensor::from_local(floats({10.f + static_cast<float>(self.rank)}), mesh, p.placements(), Shape{1});
      const DTensor a = p.redistribute(parse_placements(target));
      const DTensor b = p.redistribute(parse_placements(target));
      expect_equal(a.full_tensor(), floats({3}));
      expect_equal(b.full_tensor(), floats({3}));
      expect_equal(q.redistribute(parse_placements(target)).full_tensor(), floats({21}));
      EXPECT_EQ(p.placements(), std::vector<Placement>{Partial()});
      EXPECT_EQ(q.placements(), std::vector<Placement>{Partial()});
      expect_equal(p.local(), floats({1.f + static_cast<float>(self.rank)}));
    }
  });
}

TEST_P(DTensorOnRanks, Case11_EqualLookingCalls_GetTheirOwnPlans) {
  run(4, [](const ThreadRank& self) {
    const auto rank = static_cast<size_t>(self.rank);
    const MeshCommunicator square(self.group, DeviceMesh({2, 2}));
    const at::Tensor x = at::arange(64, at::kFloat).view({8, 8});
    const std::vector<float> row_first{0, 4, 32, 36};
    const std::vector<float> column_first{0, 32, 4, 36};
    const auto first_row = [](const DTensor& d) { return d.local()[0]; };
    const auto from = [](float begin) { return at::arange(begin, begin + 4, at::kFloat); };
    const DTensor whole = distribute(x, square, {Replicate{}, Replicate{}});
    expect_equal(first_row(whole.redistribute({Shard(0), Shard(1)})), from(row_first[rank]));
    expect_equal(first_row(whole.redistribute({Shard(1), Shard(0)})), from(column_first[rank]));

    const MeshCommunicator flat = square.with_mesh(DeviceMesh({4}));
    const MeshCommunicator half = square.with_mesh(DeviceMesh({2}, {}, self.rank < 2 ? Shape{0, 1} : Shape{3, 2}));
    const auto there_and_back = [](const at::Tensor& value, const MeshCommunicator& mesh) {
      expect_equal(distribute(value, mesh, {Shard(0)}).redistribute({Shard(1)}).full_tensor(), value);
    };
    there_and_back(at::arange(16).view({4, 4}), flat);
    there_and_back(x, flat);
    there_and_back(at::arange(16).view({4, 4}), half);

    const DTensor line = distribute(at::arange(8, at::kFloat), half, {Replicate{}});
    const bool is_first = self.rank == 0 || self.rank == 3;
    expect_equal(line.redistribute(parse_placements("RaggedShard((0,), (1, 3))")).local(),
                 is_first ? floats({0, 1}) : floats({2, 3, 4, 5, 6, 7}));
    expect_equal(line.redistribute(parse_placements("RaggedShard((0,), (3, 1))")).local(),
                 is_first ? floats({0, 1, 2, 3, 4, 5}) : floats({6, 7}));
  });
}

TEST_P(DTensorOnRanks, Case16_Item_IsTheGlobalValueOrRaises) {
  run(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh = mesh_of(self);
    EXPECT_EQ(DTensor::from_local(at::scalar_tensor(1. + self.rank), mesh, {Partial()}, Shape{}).item().toDouble(), 3);
    for (const std::string text : {"R", "S(0)", "RaggedShard((0,), (1, 0))", "RaggedShard((0,), (0, 1))"}) {
      EXPECT_EQ(leaf(at::full({1, 1}, 7.), mesh, text).item().toDouble(), 7) << text;
    }
    const std::string refused = "InvalidArgument: item takes a tensor of one element but this one has shape (2,)";
    EXPECT_EQ(error_of([&] { laid_out(floats({1, 2}), mesh, "S(0)").item(); }), refused);
    EXPECT_EQ(error_of([&] { laid_out(floats({1, 2}), mesh, "RaggedShard((0,), (0, 1))").item(); }), refused);
  });
}

TEST_P(DTensorOnRanks, SubMeshAndPermutedRanks_FollowMeshOrder) {
  run(4, [](const ThreadRank& self) {
    const at::Tensor whole = counted({6, 2});
    const MeshCommunicator square(self.group, DeviceMesh({2, 2}, {"dp", "tp"}, {3, 0, 1, 2}));
    for (const MeshCommunicator& mesh :
         {square.sub_mesh({"tp"}), square.sub_mesh({"dp"}), square.with_mesh(DeviceMesh({3}, {}, {3, 0, 2}))}) {
      const std::string ragged = mesh.mesh().size() == 3 ? "RaggedShard((0,), (1, 2, 0))" : "RaggedShard((0,), (1, 2))";
      for (const std::string& text : {std::string("S(0)"), std::string("R"), ragged}) {
        const DTensor d = laid_out(whole, mesh, text);
        EXPECT_EQ(mesh.is_member(), mesh.mesh().contains(self.rank));
        expect_equal(d.redistribute({Shard(1)}).local(), part_of(whole, layout_on(mesh.mesh(), "S(1)"), self.rank));
        if (mesh.is_member()) expect_equal(d.full_tensor(), whole);
      }
    }
  });
}

TEST_P(DTensorOnRanks, RankOutsideTheMesh_RaisesWhatTheOthersRaiseAndCommunicatesNothing) {
  run(3, [](const ThreadRank& self) {
    const auto [group, counters] = wrap_counting(self.group);
    const MeshCommunicator mesh(group, DeviceMesh({2}, {"dp"}, {0, 2}));
    const DTensor d = leaf(counted({4}), mesh, "S(0)");
    EXPECT_THAT(error_of([&] { d.redistribute({Partial()}); }),
                ::testing::HasSubstr("nothing but the same Partial becomes"));
    EXPECT_THAT(error_of([&] { d.redistribute({Shard(1)}); }), ::testing::StartsWith("OutOfRange: "));
    EXPECT_THAT(error_of([&] { d.to_local(parse_placements("R")); }), ::testing::StartsWith("InvalidArgument: "));
    d.full_tensor().sum().backward();
    const DTensor one = leaf(counted({1}), mesh, "S(0)");
    one.redistribute({Replicate{}}).backward();
    if (self.rank != 1) {
      expect_equal(d.local().grad(), at::full({2}, 2, at::kDouble));
      EXPECT_EQ(one.item().toDouble(), 0);
      return;
    }
    EXPECT_EQ(error_of([&] { one.item(); }),
              "FailedPrecondition: item: rank 1 is outside DeviceMesh((2,), ('dp',), [0, 2]) and has no value");
    EXPECT_EQ(d.local().numel(), 0);
    EXPECT_EQ(counters->total().calls, 0);
  });
}

TEST_P(DTensorChecked, UnlikeTargets_RaiseTheSameTextWithBothSides) {
  const auto texts = errors(3, [](const ThreadRank& self) {
    laid_out(at::ones({4, 4}), mesh_of(self), "S(0)")
        .redistribute({self.rank == 1 ? Placement(Shard(1)) : Placement(Replicate{})});
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text, texts[0]);
    EXPECT_THAT(text, ::testing::StartsWith(
                          "FailedPrecondition: redistribute: the ranks of the group disagree about its arguments: "));
    EXPECT_THAT(text, ::testing::ContainsRegex("rank 0, 2: [^;]* to \\[Replicate\\(\\)\\]"));
    EXPECT_THAT(text, ::testing::ContainsRegex("rank 1: [^;]* to \\[Shard\\(1\\)\\]"));
  }
}

TEST_P(DTensorChecked, UnlikeOperations_RaiseTheSameTextOnEveryRank) {
  const auto texts = errors(2, [](const ThreadRank& self) {
    const DTensor d = laid_out(at::ones({4}), mesh_of(self), "S(0)");
    if (self.rank == 0) {
      d.full_tensor();
    } else {
      d.redistribute({Replicate{}});
    }
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text,
                ::testing::HasSubstr(
                    "the ranks of the group disagree about the operation: rank 0: full_tensor; rank 1: redistribute"));
  }
}

TEST_P(DTensorChecked, RankThatNeverCame_IsNamed) {
  const auto texts = errors(
      3,
      [](const ThreadRank& self) {
        const DTensor d = laid_out(at::ones({6}), mesh_of(self), "S(0)");
        if (self.rank != 2) d.full_tensor();
      },
      kShortTimeout);
  EXPECT_EQ(texts[0], "FailedPrecondition: full_tensor: rank 2 of 3 did not come within 300 ms");
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], "no error");
}

}  // namespace
}  // namespace hyper_parallel::test
