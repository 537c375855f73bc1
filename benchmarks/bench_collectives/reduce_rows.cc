// The variable reduce-scatter: as the backward of the all-gather, and as a redistribution that resolves Partial.

#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "benchmarks/bench_collectives/bare.h"
#include "benchmarks/bench_collectives/inputs.h"
#include "benchmarks/bench_collectives/row.h"
#include "hyper_parallel/torch/counting_backend.h"
#include "hyper_parallel/torch/variable_all_gather.h"

namespace hyper_parallel::benchmarks {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using SideOn = std::function<std::function<at::Tensor()>(const GroupPtr& group)>;

constexpr const char* kBaseline = "all_reduce, slice";
constexpr const char* kUnits = "(1, 3)";
const Splits kUnitList{1, 3};

/// Bytes that all ranks receive in one run of a side on a counting group.
int64_t bytes_received(const Ranks& ranks, const SideOn& side) {
  const CountedGroup counted = wrap_counting(ranks.group());
  const auto run = side(counted.group);
  counted.counters->reset();
  run();
  return ranks.sum(counted.counters->total().bytes_received);
}

/// The time of a reduce-scatter beside that of the all_reduce, and the bytes of both.
std::vector<Figure> time_and_bytes(const Ranks& ranks, const Options& options, const std::string& what,
                                   const SideOn& ours, const SideOn& theirs) {
  Comparison comparison{.what = what, .baseline = kBaseline, .goal = faster(1.3)};
  comparison.ours = ours(ranks.group());
  comparison.theirs = theirs(ranks.group());
  const std::string bytes = what + ", bytes received";
  const auto count = [=, &ranks] {
    return bytes_row(bytes, kBaseline, at_most(0.5), bytes_received(ranks, ours), bytes_received(ranks, theirs));
  };
  return {timed(ranks, options.pairs, std::move(comparison)), {bytes, kBaseline, count}};
}

/// The gradient of the gathered rows goes back to their owners; the forward has run before.
SideOn backward_of_gather(const at::Tensor& input, const at::Tensor& gradient, const Splits& splits) {
  return [=](const GroupPtr& group) -> std::function<at::Tensor()> {
    const at::Tensor leaf = input.detach().requires_grad_();
    const at::Tensor gathered = differentiable_variable_all_gather(leaf, splits, group);
    return [=] { return torch::autograd::grad({gathered}, {leaf}, {gradient}, /*retain_graph=*/true).front(); };
  };
}

SideOn redistributed(const at::Tensor& share, const std::string& target) {
  return [=](const GroupPtr& group) -> std::function<at::Tensor()> {
    const MeshCommunicator mesh(group, DeviceMesh({group->getSize()}, {"dp"}));
    const DTensor pending = DTensor::from_local(share, mesh, {Partial()}, share.sizes().vec());
    return [=] { return pending.redistribute(parse_placements(target)).local(); };
  };
}

}  // namespace

std::vector<Figure> reduce_figures(const Ranks& ranks, const Options& options) {
  const at::Tensor whole = matrix(options.size_mib);
  const Splits splits = splits_of(whole, kUnitList);
  const at::Tensor share = whole + ranks.rank();
  const SideOn theirs = [=](const GroupPtr& group) {
    return [=] { return all_reduce_and_slice(share, splits, *group); };
  };
  std::vector<Figure> figures =
      time_and_bytes(ranks, options, std::string("backward of all-gather ") + kUnits,
                     backward_of_gather(own_rows(whole, splits, ranks.rank()), share, splits), theirs);
  const std::string ragged = std::string("RaggedShard((0,), ") + kUnits + ")";
  for (Figure& figure : time_and_bytes(ranks, options, std::string("Partial -> ragged ") + kUnits,
                                       redistributed(share, ragged), theirs)) {
    figures.push_back(std::move(figure));
  }
  return figures;
}

}  // namespace hyper_parallel::benchmarks
