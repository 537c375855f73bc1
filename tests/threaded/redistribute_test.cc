// Every transition of the library's table, forward and backward, on ranks that are threads: local tensors and gradients
// equal those of one process.

#include "tests/threaded/both_paths.h"
#include "tests/threaded/one_process.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

/// All layouts of a tensor on a mesh that are taken to each other; those with Partial as sources only.
struct Table {
  Shape mesh;
  Shape shape;
  std::vector<std::string> layouts;
};

const std::vector<Table> kTables = {
    {{1}, {3, 2}, {"R", "S(1)", "RaggedShard((0,), (3,))", "P(max)"}},
    {{2},
     {6, 4},
     {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 2))", "RaggedShard((0,), (0, 1))", "RaggedShard((0, 1), (3, 5))",
      "RaggedShard((0, 1), (5, 3))", "P", "P(avg)", "P(max)", "P(min)"}},
    {{2}, {0, 4}, {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 1))", "RaggedShard((0, 1), (2, 1))", "P"}},
    {{2}, {4, 0}, {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 3))", "P(max)"}},
    {{3},
     {5, 3},
     {"R", "S(0)", "S(-1)", "RaggedShard((0,), (1, 0, 4))", "RaggedShard((0,), (0, 5, 0))",
      "RaggedShard((0, 1), (4, 4, 7))", "P", "P(max)"}},
    {{3}, {7}, {"R", "S(0)", "RaggedShard((0,), (2, 0, 5))", "RaggedShard((0,), (0, 0, 1))", "P(avg)"}},
    {{4},
     {5, 2, 3},
     {"R", "S(0)", "S(1)", "S(2)", "RaggedShard((0,), (1, 0, 3, 1))", "RaggedShard((0, 1), (1, 2, 0, 7))",
      "RaggedShard((0, 1, 2), (7, 9, 14, 0))", "P(min)"}},
    {{4}, {8, 4}, {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 2, 0, 5))", "P"}},
    {{2, 2},
     {5, 3},
     {"R, R", "S(0), R", "R, S(0)", "S(0), S(0)", "S(0), S(1)", "S(1), S(0)", "S(1), S(1)",
      "R, RaggedShard((0,), (2, 3))", "RaggedShard((0, 1), (4, 11)), R", "RaggedShard((0,), (0, 1)), R", "P, R",
      "R, P(avg)", "P, P", "P(max), P", "P(avg), P", "P(min), P(max)", "P, S(0)", "S(1), P(min)"}},
};

reference::Shares shares_of(const Layout& layout, const at::Tensor& whole) {
  uint64_t state = 1;
  const reference::Draw draw = [&state](int64_t low, int64_t high) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(high - low + 1));
  };
  const at::Tensor flat = whole.reshape({-1}).contiguous();
  const std::vector<double> values(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
  return reference::distribute(reference::scheme_of(layout, whole.sizes().vec()), values, draw);
}

/// One source layout: what each rank holds, and what it must get as gradient.
struct Source {
  std::string text;
  Layout layout;
  std::vector<at::Tensor> locals;
  std::vector<at::Tensor> gradients;
};

Source source_of(const Layout& layout, const std::string& text, const at::Tensor& whole, const at::Tensor& gradient) {
  Source source{text, layout, {}, {}};
  const Shape shape = whole.sizes().vec();
  const reference::Shares shares = shares_of(layout, whole);
  const OneProcess truth(layout, shape, shares);
  expect_equal(truth.value().detach(), whole);
  for (int64_t rank = 0; rank < layout.mesh().size(); ++rank) {
    const Shape sizes = part_shape(layout, shape, rank);
    source.locals.push_back(at::tensor(shares.at(rank), at::kDouble).view(sizes));
    source.gradients.push_back(truth.gradient(gradient, rank).view(sizes));
  }
  return source;
}

std::vector<Source> sources_of(const Table& table, const at::Tensor& whole, const at::Tensor& gradient) {
  const DeviceMesh mesh(table.mesh);
  std::vector<Source> sources;
  for (const std::string& text : table.layouts) {
    sources.push_back(source_of(layout_on(mesh, text), text, whole, gradient));
  }
  return sources;
}

class Redistribute : public PathTest {
 protected:
  /// Takes every source to every layout without Partial.
  void expect_all_pairs(const Table& table) {
    // Multiples of the mesh's size: every sum and average of shares is exact.
    const at::Tensor whole = counted(table.shape, 12, -48);
    const at::Tensor gradient = counted(table.shape, 12, 60);
    const auto sources = sources_of(table, whole, gradient);
    run(static_cast<int>(DeviceMesh(table.mesh).size()), [&](const ThreadRank& self) {
      const MeshCommunicator mesh(self.group, DeviceMesh(table.mesh));
      for (const Source& source : sources) {
        for (const Source& target : sources) {
          if (target.layout.has_partial()) continue;
          SCOPED_TRACE(str_cat(tuple_text(table.shape), " on ", tuple_text(table.mesh), ", rank ", self.rank, ": ",
                               source.text, " -> ", target.text));
          expect_pair(source, target, mesh, table.shape);
        }
      }
    });
  }

 private:
  static void expect_pair(const Source& source, const Source& target, const MeshCommunicator& mesh,
                          const Shape& shape) {
    const auto rank = static_cast<size_t>(mesh.rank());
    const at::Tensor local = source.locals[rank].clone().requires_grad_();
    const DTensor from = DTensor::from_local(local, mesh, source.layout.placements(), shape);
    const DTensor to = from.redistribute(target.layout.placements());
    expect_equal(to.local(), target.locals[rank]);
    EXPECT_TRUE(to.local().is_contiguous());
    EXPECT_EQ(to.layout(), target.layout.folded(to.ndim()));
    EXPECT_EQ(to.shape(), shape);
    EXPECT_TRUE(to.requires_grad());
    to.local().backward(target.gradients[rank]);
    expect_equal(local.grad(), source.gradients[rank]);
    expect_equal(from.local(), source.locals[rank]);
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, Redistribute, ::testing::ValuesIn(unchecked_paths()), name_of);

TEST_P(Redistribute, EveryTransition_ValuesAndGradientsAreThoseOfOneProcess) {
  for (const Table& table : kTables) expect_all_pairs(table);
}

TEST_P(Redistribute, EveryDtype_KeepsItsBits) {
  const std::vector<std::string> layouts{"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 0, 4))",
                                         "RaggedShard((0, 1), (4, 4, 7))"};
  run(3, [&](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kBool, at::kComplexFloat}) {
      const at::Tensor whole = at::arange(15, at::kLong).remainder(2).add(at::arange(15)).view({5, 3}).to(dtype);
      for (const std::string& source : layouts) {
        for (const std::string& target : layouts) {
          const DTensor to = laid_out(whole, mesh, source).redistribute(parse_placements(target));
          expect_equal(to.local(), part_of(whole, to.layout(), self.rank));
          EXPECT_EQ(to.dtype(), dtype);
        }
      }
    }
  });
}

TEST_P(Redistribute, PartialOfEveryDtypeThatReduces_IsReduced) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt}) {
      const at::Tensor base = at::arange(10, dtype).view({5, 2});
      for (const std::string target : {"R", "S(0)", "RaggedShard((0,), (0, 2, 3))"}) {
        const auto reduced = [&](const std::string& op) {
          const DTensor share =
              DTensor::from_local(base * (self.rank + 1), mesh, parse_placements(str_cat("P(", op, ")")));
          return share.redistribute(parse_placements(target)).full_tensor();
        };
        expect_equal(reduced("sum"), base * 6);
        expect_equal(reduced("max"), base * 3);
        expect_equal(reduced("min"), base);
        if (at::isFloatingType(dtype)) expect_equal(reduced("avg"), base * 2);
      }
    }
  });
}

TEST_P(Redistribute, ReductionThatTheDtypeLacks_RaisesOnEveryRank) {
  const auto texts_of = [&](at::ScalarType dtype, const std::string& op) {
    return errors(2, [&](const ThreadRank& self) {
      const MeshCommunicator mesh(self.group, DeviceMesh({2}));
      DTensor::from_local(at::ones({4}, dtype), mesh, parse_placements(op)).redistribute({Replicate{}});
    });
  };
  for (const std::string& text : texts_of(at::kBool, "P")) {
    EXPECT_EQ(text, "Type: redistribute: the input is bool, which has no sum");
  }
  for (const std::string& text : texts_of(at::kLong, "P(avg)")) {
    EXPECT_EQ(text, "Type: redistribute: Partial(avg) of Long has no exact value");
  }
}

TEST_P(Redistribute, PartialThatStays_IsStillPending) {
  const at::Tensor whole = counted({5, 3}, 12);
  const DeviceMesh mesh({2, 2});
  const std::vector<std::pair<std::string, std::string>> pairs{
      {"P, S(0)", "P, R"}, {"P, S(0)", "P, S(1)"},     {"S(1), P(max)", "R, P(max)"},
      {"P, P", "R, P"},    {"P, P(avg)", "R, P(avg)"}, {"P(max), P", "P(max), S(0)"}};
  for (const auto& [source, target] : pairs) {
    const reference::Shares shares = shares_of(layout_on(mesh, source), whole);
    run(4, [&, from = source, to = target](const ThreadRank& self) {
      SCOPED_TRACE(str_cat(from, " -> ", to));
      const MeshCommunicator ranks(self.group, mesh);
      const Shape sizes = part_shape(layout_on(mesh, from), {5, 3}, self.rank);
      const at::Tensor local = at::tensor(shares.at(self.rank), at::kDouble).view(sizes);
      const DTensor kept =
          DTensor::from_local(local, ranks, parse_placements(from), Shape{5, 3}).redistribute(parse_placements(to));
      EXPECT_EQ(kept.placements(), parse_placements(to));
      expect_equal(kept.full_tensor(), whole);
    });
  }
}

TEST_P(Redistribute, NewPartial_RaisesOnEveryRank) {
  const auto texts_of = [&](const std::string& source, const std::string& target) {
    return errors(2, [&](const ThreadRank& self) {
      const MeshCommunicator mesh(self.group, DeviceMesh({2}, {"dp"}));
      DTensor::from_local(at::ones({4, 2}), mesh, parse_placements(source)).redistribute(parse_placements(target));
    });
  };
  for (const std::string& text : texts_of("P(sum)", "P(avg)")) {
    EXPECT_EQ(text,
              "InvalidArgument: cannot redistribute [Partial(sum)] to [Partial(avg)]: nothing but the same Partial "
              "becomes Partial(avg) on mesh dim 'dp'");
  }
  for (const std::string& text : texts_of("R", "P")) {
    EXPECT_THAT(text, ::testing::HasSubstr("nothing but the same Partial becomes Partial(sum) on mesh dim 'dp'"));
  }
}

TEST_P(Redistribute, OtherMeshOverTheSameRanks_ValuesAndGradientsAreRight) {
  const std::vector<std::pair<DeviceMesh, std::vector<std::string>>> meshes{
      {DeviceMesh({4}), {"R", "S(0)", "S(1)"}},
      {DeviceMesh({4}, {"p"}, {2, 0, 3, 1}), {"R", "S(0)", "S(1)"}},
      {DeviceMesh({2, 2}, {"a", "b"}, {3, 1, 0, 2}), {"S(0), S(0)", "S(1), S(0)", "R, S(1)", "S(0), R"}}};
  const at::Tensor whole = counted({5, 3});
  const at::Tensor gradient = counted({5, 3}, 3, 7);
  run(4, [&](const ThreadRank& self) {
    for (const auto& [from_mesh, sources] : meshes) {
      for (const auto& [to_mesh, targets] : meshes) {
        for (const std::string& source : sources) {
          for (const std::string& target : targets) {
            SCOPED_TRACE(str_cat(to_string(from_mesh), source, " -> ", to_string(to_mesh), target));
            const DTensor from = leaf(whole, MeshCommunicator(self.group, from_mesh), source);
            const DTensor to = from.redistribute(to_mesh, parse_placements(target));
            expect_equal(to.local(), part_of(whole, layout_on(to_mesh, target), self.rank));
            EXPECT_EQ(to.mesh().mesh(), to_mesh);
            to.local().backward(part_of(gradient, to.layout(), self.rank));
            expect_equal(from.local().grad(), part_of(gradient, from.layout(), self.rank));
          }
        }
      }
    }
  });
}

TEST_P(Redistribute, OtherMesh_RefusesOtherRanksAndRagged) {
  const auto texts = errors(4, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}, {"dp"}, {0, 1}));
    laid_out(counted({4}), mesh, "S(0)").redistribute(DeviceMesh({2}, {"dp"}, {0, 2}), {Replicate{}});
  });
  for (const std::string& text : texts) EXPECT_THAT(text, ::testing::HasSubstr("the meshes must hold the same ranks"));
  const auto ragged = errors(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    laid_out(counted({4}), mesh, "RaggedShard((0,), (1, 3))").redistribute(DeviceMesh({2}, {"dp"}, {1, 0}), {Shard(0)});
  });
  for (const std::string& text : ragged) EXPECT_THAT(text, ::testing::HasSubstr("a RaggedShard stays on its mesh"));
}

TEST_P(Redistribute, StridedLocal_IsReadInRowMajorOrder) {
  run(3, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({3}));
    const at::Tensor whole = counted({5, 3});
    for (const std::string source : {"R", "S(0)", "S(1)", "P(max)"}) {
      const at::Tensor part = part_of(whole, layout_on(mesh.mesh(), source), self.rank);
      const at::Tensor strided = at::empty({part.size(1), part.size(0) * 2}, at::kDouble).t().slice(0, 0, {}, 2);
      strided.copy_(part);
      const DTensor from = DTensor::from_local(strided, mesh, parse_placements(source), Shape{5, 3});
      for (const std::string target : {"R", "S(0)", "S(1)", "RaggedShard((0,), (1, 0, 4))"}) {
        const DTensor to = from.redistribute(parse_placements(target));
        expect_equal(to.local(), part_of(whole, to.layout(), self.rank));
      }
    }
  });
}

}  // namespace
}  // namespace hyper_parallel::test
