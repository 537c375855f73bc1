#include "examples/reshard_model/ranks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "hyper_parallel/torch/gloo_group.h"

namespace hyper_parallel::examples {
namespace {

constexpr std::chrono::minutes kTimeout{2};

c10::intrusive_ptr<c10d::ProcessGroup> meet(const Options& options, const ProcessContext& process) {
  const auto store = options.port == 0
                         ? create_file_store((process.folder / "rendezvous").string(), process.size)
                         : create_tcp_store("127.0.0.1", options.port, process.rank, process.size, kTimeout);
  return create_gloo_group(store, process.rank, process.size, {.timeout = kTimeout});
}

void all_reduce(c10d::ProcessGroup& group, at::Tensor values, c10d::ReduceOp::RedOpType op) {
  std::vector<at::Tensor> tensors{std::move(values)};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  group.allreduce(tensors, options)->wait();
}

}  // namespace

Ranks::Ranks(const Options& options, const ProcessContext& process)
    : group_(meet(options, process)), counted_(wrap_counting(group_)) {}

void Ranks::barrier() const { group_->barrier()->wait(); }

std::vector<int64_t> Ranks::sum(const std::vector<int64_t>& values) const {
  at::Tensor total = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::ranges::copy(values, total.mutable_data_ptr<int64_t>());
  if (!values.empty()) all_reduce(*group_, total, c10d::ReduceOp::SUM);
  const int64_t* begin = total.const_data_ptr<int64_t>();
  return {begin, begin + total.numel()};
}

double Ranks::max(double value) const {
  const at::Tensor greatest = at::full({1}, value, at::kDouble);
  all_reduce(*group_, greatest, c10d::ReduceOp::MAX);
  return greatest.item<double>();
}

}  // namespace hyper_parallel::examples
