#include "hyper_parallel/torch/mesh_communicator.h"

#include <gtest/gtest.h>

#include "hyper_parallel/base/error.h"
#include "tests/support/expect_error.h"
#include "tests/threaded/thread_backend.h"

namespace hyper_parallel {
namespace {

using Ranks = std::vector<int64_t>;

TEST(MeshCommunicator, RankOfTheGroup_IsTheJobsUnlessMembersSayOtherwise) {
  const auto groups = test::create_thread_groups(3);
  const MeshCommunicator plain(groups[2], DeviceMesh({3}));
  EXPECT_EQ(plain.rank(), 2);
  EXPECT_EQ(plain.group_rank(1), 1);
  const MeshCommunicator named(groups[2], DeviceMesh({2}, {"dp"}, {7, 4}), {4, 9, 7});
  EXPECT_EQ(named.rank(), 7);
  EXPECT_EQ(named.group_rank(9), 1);
  EXPECT_EQ(named.mesh_group_ranks(), (Ranks{2, 0}));
  EXPECT_TRUE(named.is_member());
  EXPECT_FALSE(MeshCommunicator(groups[1], named.mesh(), {4, 9, 7}).is_member());
}

TEST(MeshCommunicator, OtherMeshes_ShareGroupAndPlans) {
  const auto groups = test::create_thread_groups(4);
  const MeshCommunicator square(groups[3], DeviceMesh({2, 2}, {"dp", "tp"}));
  const MeshCommunicator tp = square.sub_mesh({"tp"});
  EXPECT_EQ(tp.mesh(), DeviceMesh({2}, {"tp"}, {2, 3}));
  EXPECT_TRUE(tp.shares_group(square));
  EXPECT_EQ(&tp.plans(), &square.plans());
  EXPECT_EQ(&square.with_mesh(DeviceMesh({4})).plans(), &square.plans());
  EXPECT_FALSE(square.shares_group(MeshCommunicator(groups[2], square.mesh())));
}

TEST(MeshCommunicator, DeferredGroup_IsAskedForAtFirstCommunication) {
  const auto groups = test::create_thread_groups(2);
  int asked = 0;
  test::GroupPtr available;
  const MeshCommunicator mesh = MeshCommunicator::deferred(
      [&] {
        ++asked;
        HP_CHECK(available, kFailedPrecondition, "no process group yet");
        return available;
      },
      1, DeviceMesh({2}));
  EXPECT_EQ(mesh.rank(), 1);
  EXPECT_TRUE(mesh.is_member());
  const MeshCommunicator flat = mesh.with_mesh(DeviceMesh({2}, {"flat"}));
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE(mesh.talks_over(groups[1].get()));
  expect_error(ErrorCode::kFailedPrecondition, "no process group yet", [&] { mesh.group(); });
  available = groups[1];
  EXPECT_EQ(&mesh.group(), groups[1].get());
  EXPECT_EQ(&flat.group(), groups[1].get());
  EXPECT_TRUE(flat.talks_over(groups[1].get()));
  EXPECT_FALSE(flat.talks_over(groups[0].get()));
  EXPECT_EQ(flat.mesh_group_ranks(), (Ranks{0, 1}));
  EXPECT_EQ(asked, 2);
}

TEST(MeshCommunicator, DeferredGroup_ThatDoesNotFit_IsRefused) {
  const auto groups = test::create_thread_groups(2);
  const auto source = [&] { return groups[0]; };
  expect_error(ErrorCode::kFailedPrecondition, "was written by rank 1 but this process is rank 0",
               [&] { MeshCommunicator::deferred(source, 1, DeviceMesh({2})).group(); });
  expect_error(ErrorCode::kInvalidArgument, "holds rank 2 but the process group's ranks are (0, 1)",
               [&] { MeshCommunicator::deferred(source, 0, DeviceMesh({3})).group(); });
}

TEST(MeshCommunicator, WrongArguments_AreRefused) {
  const auto groups = test::create_thread_groups(2);
  expect_error(ErrorCode::kType, "MeshCommunicator: group is null but must be a process group",
               [] { MeshCommunicator(test::GroupPtr(), DeviceMesh({2})); });
  expect_error(ErrorCode::kInvalidArgument, "MeshCommunicator members are 3 ranks but the group has 2",
               [&] { MeshCommunicator(groups[0], DeviceMesh({2}), {0, 1, 2}); });
  expect_error(ErrorCode::kInvalidArgument, "DeviceMesh rank 5 stands twice in the rank list",
               [&] { MeshCommunicator(groups[0], DeviceMesh({1}, {}, {5}), {5, 5}); });
  expect_error(ErrorCode::kInvalidArgument, "holds rank 2 but the process group's ranks are (0, 1)",
               [&] { MeshCommunicator(groups[0], DeviceMesh({3})); });
  const MeshCommunicator pair(groups[0], DeviceMesh({2}));
  expect_error(ErrorCode::kInvalidArgument, "holds rank 2 but the process group's ranks are (0, 1)",
               [&] { pair.with_mesh(DeviceMesh({1}, {}, {2})); });
}

}  // namespace
}  // namespace hyper_parallel
