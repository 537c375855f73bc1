#include "benchmarks/bench_collectives/bare.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace hyper_parallel::benchmarks {
namespace {

/// An uninitialized tensor like `input` with another count of rows.
at::Tensor rows_like(const at::Tensor& input, int64_t rows) {
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, input.options());
}

int64_t total(const Splits& splits) { return std::accumulate(splits.begin(), splits.end(), int64_t{0}); }

}  // namespace

int64_t first_row(const Splits& splits, int64_t rank) {
  return std::accumulate(splits.begin(), splits.begin() + rank, int64_t{0});
}

at::Tensor bare_gather(const at::Tensor& input, const Splits& splits, c10d::ProcessGroup& group) {
  const at::Tensor output = rows_like(input, total(splits));
  const auto place_of = [&](int rank) {
    return output.narrow(0, first_row(splits, rank), splits[static_cast<size_t>(rank)]);
  };
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int peer = 0; peer < group.getSize(); ++peer) {
    if (peer == group.getRank()) continue;
    std::vector<at::Tensor> receive{place_of(peer)};
    std::vector<at::Tensor> send{input};
    if (receive.front().numel() > 0) works.push_back(group.recv(receive, peer, 0));
    if (input.numel() > 0) works.push_back(group.send(send, peer, 0));
  }
  place_of(group.getRank()).copy_(input);
  for (const auto& work : works) work->wait();
  return output;
}

at::Tensor padded_gather(const at::Tensor& input, const Splits& splits, c10d::ProcessGroup& group) {
  const int64_t longest = std::ranges::max(splits);
  std::vector<at::Tensor> inputs{rows_like(input, longest)};
  inputs.front().narrow(0, 0, input.size(0)).copy_(input);
  std::vector<std::vector<at::Tensor>> gathered(1);
  for (size_t rank = 0; rank < splits.size(); ++rank) gathered.front().push_back(rows_like(input, longest));
  group.allgather(gathered, inputs)->wait();
  std::vector<at::Tensor> trimmed;
  for (size_t rank = 0; rank < splits.size(); ++rank) {
    trimmed.push_back(gathered.front()[rank].narrow(0, 0, splits[rank]));
  }
  return at::cat(trimmed);
}

at::Tensor torch_gather(const at::Tensor& input, c10d::ProcessGroup& group) {
  at::Tensor output = rows_like(input, input.size(0) * group.getSize());
  at::Tensor own = input;
  group.all_gather_single(output, own)->wait();
  return output;
}

at::Tensor torch_all_to_all(const at::Tensor& input, Splits output_splits, Splits input_splits,
                            c10d::ProcessGroup& group) {
  at::Tensor output = rows_like(input, total(output_splits));
  at::Tensor own = input;
  group.all_to_all_single(output, own, output_splits, input_splits)->wait();
  return output;
}

at::Tensor all_reduce_and_slice(const at::Tensor& input, const Splits& splits, c10d::ProcessGroup& group) {
  std::vector<at::Tensor> sum{input.clone()};
  group.allreduce(sum)->wait();
  const int64_t rank = group.getRank();
  return sum.front().narrow(0, first_row(splits, rank), splits[static_cast<size_t>(rank)]);
}

}  // namespace hyper_parallel::benchmarks
