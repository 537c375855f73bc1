// The core's reductions on bytes have the bits of torch's, whatever path the messages take.

#include <algorithm>
#include <cstring>

#include "hyper_parallel/redistribute/combine.h"
#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/redistribute/step_bytes.h"
#include "hyper_parallel/torch/executor.h"
#include "hyper_parallel/torch/scalar_dtype.h"
#include "tests/threaded/both_paths.h"

namespace hyper_parallel::test {
namespace {

constexpr int64_t kRanks = 3;
constexpr int64_t kRows = 67;  // an uneven share, vectors and rests of them

class CoreCombine : public PathTest {};

std::vector<std::byte> bytes_of(const at::Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.nbytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), tensor.const_data_ptr(), bytes.size());
  return bytes;
}

/// Integers whose sums wrap, floats of no round value and of unlike size.
at::Tensor share_of(int64_t rank, at::ScalarType dtype) {
  const at::Tensor counted =
      at::arange(kRows * 5, at::kDouble).add(static_cast<double>(rank + 1) * 1.7).view({kRows, 5});
  if (c10::isIntegralType(dtype, false)) return counted.mul(1e16).to(at::kLong).to(dtype);
  const at::Tensor values = counted.sin().mul(counted.mul(0.3).cos().mul(6).exp());
  return c10::isComplexType(dtype) ? at::complex(values, values.add(0.1)).to(dtype) : values.to(dtype);
}

/// What `rank` makes of all ranks' shares without torch.
std::vector<std::byte> combined_by_core(const Plan& plan, int64_t rank, at::ScalarType dtype) {
  const auto item_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  const RankStep own = rank_plan(plan, rank).steps.at(0);
  std::vector<std::vector<std::byte>> messages;
  for (const Transfer& receive : own.receives) {
    const RankStep peer = rank_plan(plan, receive.peer).steps.at(0);
    const auto send = std::ranges::find(peer.sends, rank, &Transfer::peer) - peer.sends.begin();
    messages.emplace_back(static_cast<size_t>(receive.numel * item_bytes));
    pack_message(peer, send, item_bytes, bytes_of(share_of(receive.peer, dtype)), messages.back());
  }
  const std::vector<std::span<const std::byte>> terms(messages.begin(), messages.end());
  std::vector<std::byte> target(static_cast<size_t>(own.target_numel * item_bytes));
  combine_messages(own, *stored_dtype(dtype), bytes_of(share_of(rank, dtype)), terms, target);
  return target;
}

bool has_reduction(at::ScalarType dtype, ReduceOp op) {
  return error_of([&] { check_reducible("", *stored_dtype(dtype), op); }) == "no error";
}

TEST_P(CoreCombine, EveryDtypeAndReduction_HasTorchsBits) {
  run(kRanks, [&](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({kRanks}));
    for (const at::ScalarType dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                                       at::kFloat, at::kDouble, at::kComplexFloat}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
        if (!has_reduction(dtype, op)) continue;
        const Plan plan =
            plan_redistribution(Layout(mesh.mesh(), {Partial(op)}), Layout(mesh.mesh(), {Shard(0)}), Dims{kRows, 5});
        const at::Tensor by_torch = execute(rank_plan(plan, self.rank), share_of(self.rank, dtype), mesh);
        EXPECT_EQ(bytes_of(by_torch), combined_by_core(plan, self.rank, dtype)) << dtype << " " << to_string(op);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, CoreCombine, ::testing::ValuesIn(unchecked_paths()), name_of);

}  // namespace
}  // namespace hyper_parallel::test
