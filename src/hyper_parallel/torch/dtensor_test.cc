// What one rank alone shows of a DTensor; ranks that talk to each other are in tests/threaded.

#include "hyper_parallel/torch/dtensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/threaded/thread_backend.h"

namespace hyper_parallel {
namespace {

using Shape = std::vector<int64_t>;

MeshCommunicator one_rank() { return {test::create_thread_groups(1)[0], DeviceMesh({1}, {"dp"})}; }

TEST(DTensor, Facts_AreThoseOfTheLogicalTensor) {
  const auto groups = test::create_thread_groups(2);
  const MeshCommunicator mesh(groups[1], DeviceMesh({2}, {"dp"}));
  const DTensor d = DTensor::from_local(at::ones({2, 4}, at::kDouble), mesh, {Shard(-2)}, Shape{5, 4});
  EXPECT_EQ(d.shape(), (Shape{5, 4}));
  EXPECT_EQ(d.ndim(), 2);
  EXPECT_EQ(d.numel(), 20);
  EXPECT_EQ(d.dtype(), at::kDouble);
  EXPECT_EQ(d.placements(), std::vector<Placement>{Shard(0)});
  EXPECT_EQ(to_string(d), "DTensor(shape=(5, 4), dtype=Double, placements=[Shard(0)], mesh=('dp',), local=(2, 4))");
}

TEST(DTensor, Copies_ShareStorageAndGraph) {
  DTensor d = DTensor::from_local(at::ones({3}), one_rank(), {Replicate{}});
  const DTensor copy = d;
  d.requires_grad_();
  EXPECT_TRUE(copy.requires_grad());
  copy.detach().local().fill_(2);
  EXPECT_TRUE(at::equal(d.local(), at::full({3}, 2.f)));
  EXPECT_FALSE(copy.grad().has_value());
}

TEST(DTensor, OneRank_GoesThroughEveryLayout) {
  const at::Tensor whole = at::arange(6, at::kFloat).view({3, 2});
  const DTensor d = distribute(whole, one_rank(), {Replicate{}}).requires_grad_();
  const DTensor ragged = d.redistribute(parse_placements("RaggedShard((0,), (3,))"));
  EXPECT_EQ(ragged.local().sizes(), Shape{6});
  const DTensor shard = ragged.redistribute({Shard(1)});
  EXPECT_TRUE(at::equal(shard.full_tensor(), whole));
  shard.full_tensor().sum().backward();
  EXPECT_TRUE(at::equal(d.grad()->local(), at::ones({3, 2})));
}

TEST(DTensor, OneRank_ReadsAndIndexesItsValues) {
  const DTensor d = distribute(at::arange(6, at::kFloat).view({3, 2}), one_rank(), {Shard(0)});
  EXPECT_TRUE(at::equal(d[-1].full_tensor(), at::tensor({4.f, 5.f})));
  EXPECT_EQ(distribute(at::full({1, 1}, 7.f), one_rank(), {Shard(0)}).item().toDouble(), 7);
  expect_error(ErrorCode::kInvalidArgument, "item takes a tensor of one element but this one has shape (3, 2)",
               [&] { d.item(); });
  expect_error(ErrorCode::kOutOfRange, "x[i]: index 3 is out of range for 3 rows", [&] { d[3]; });
}

}  // namespace
}  // namespace hyper_parallel
