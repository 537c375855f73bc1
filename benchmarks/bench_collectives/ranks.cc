#include "benchmarks/bench_collectives/ranks.h"

#include <ATen/ops/full.h>

#include <chrono>
#include <utility>
#include <vector>

#include "hyper_parallel/torch/gloo_group.h"

namespace hyper_parallel::benchmarks {
namespace {

/// Far more than any operation takes, so that it ends only runs in which a rank is lost.
constexpr std::chrono::minutes kTimeout{2};

at::Tensor all_reduced(c10d::ProcessGroup& group, at::Tensor value, c10d::ReduceOp::RedOpType op) {
  std::vector<at::Tensor> tensors{std::move(value)};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  group.allreduce(tensors, options)->wait();
  return tensors.front();
}

}  // namespace

Ranks::Ranks(const std::filesystem::path& store, const std::string& name, int64_t rank, int64_t size)
    : group_(create_gloo_group(create_file_store(store.string(), size), rank, size,
                               {.timeout = kTimeout, .name = name})) {}

void Ranks::barrier() const { group_->barrier()->wait(); }

double Ranks::max(double value) const {
  return all_reduced(*group_, at::full({1}, value, at::kDouble), c10d::ReduceOp::MAX).item<double>();
}

int64_t Ranks::sum(int64_t value) const {
  return all_reduced(*group_, at::full({1}, value, at::kLong), c10d::ReduceOp::SUM).item<int64_t>();
}

}  // namespace hyper_parallel::benchmarks
