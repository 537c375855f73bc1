#include "hyper_parallel/torch/counting_backend.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

int64_t bytes_of(const at::Tensor& tensor) { return tensor.numel() * static_cast<int64_t>(tensor.element_size()); }

int64_t bytes_of(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

/// Passes every operation on to `inner` and counts it; see the table in the header for what is counted.
class CountingBackend final : public c10d::Backend {
 public:
  CountingBackend(BackendPtr inner, std::shared_ptr<CommunicationCounters> counters)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), counters_(std::move(counters)) {}

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  bool supportsCoalescing() const override { return inner_->supportsCoalescing(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void startCoalescing() override { inner_->startCoalescing(); }
  WorkPtr endCoalescing() override { return inner_->endCoalescing(); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    count(OperationKind::kSend, destination == getRank() ? 0 : bytes_of(tensors), 0);
    return inner_->send(tensors, destination, tag);
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    count(OperationKind::kReceive, 0, source == getRank() ? 0 : bytes_of(tensors));
    return inner_->recv(tensors, source, tag);
  }

  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    count(OperationKind::kReceive, 0, bytes_of(tensors));
    return inner_->recvAnysource(tensors, tag);
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    count_rooted(OperationKind::kBroadcast, options.rootRank, others(bytes_of(tensors)), 0, 0,
                 others(bytes_of(tensors)));
    return inner_->broadcast(tensors, options);
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    count_all_reduce(tensors);
    return inner_->allreduce(tensors, options);
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    count_all_reduce(tensors);
    return inner_->allreduce_coalesced(tensors, options);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    count_rooted(OperationKind::kReduce, options.rootRank, 0, others(bytes_of(tensors)), others(bytes_of(tensors)), 0);
    return inner_->reduce(tensors, options);
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    count(OperationKind::kAllGather, others(bytes_of(inputs)), bytes_of_others(outputs));
    return inner_->allgather(outputs, inputs, options);
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    count(OperationKind::kAllGather, others(bytes_of(input)), bytes_of(output) - bytes_of(input));
    return inner_->_allgather_base(output, input, options);
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    count(OperationKind::kAllGather, others(bytes_of(inputs)), bytes_of(outputs) - bytes_of(inputs));
    return inner_->allgather_into_tensor_coalesced(outputs, inputs, options);
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    count_rooted(OperationKind::kGather, options.rootRank, 0, bytes_of_others(outputs), others(bytes_of(inputs)), 0);
    return inner_->gather(outputs, inputs, options);
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    count_rooted(OperationKind::kScatter, options.rootRank, bytes_of_others(inputs), 0, 0, others(bytes_of(outputs)));
    return inner_->scatter(outputs, inputs, options);
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    count(OperationKind::kReduceScatter, bytes_of_others(inputs), others(bytes_of(outputs)));
    return inner_->reduce_scatter(outputs, inputs, options);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    count(OperationKind::kReduceScatter, bytes_of(input) - bytes_of(output), others(bytes_of(output)));
    return inner_->_reduce_scatter_base(output, input, options);
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    count(OperationKind::kReduceScatter, bytes_of(inputs) - bytes_of(outputs), others(bytes_of(outputs)));
    return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    count(OperationKind::kAllToAll, bytes_of(input) - own_bytes(input, input_splits),
          bytes_of(output) - own_bytes(output, output_splits));
    return inner_->alltoall_base(output, input, output_splits, input_splits, options);
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    count(OperationKind::kAllToAll, bytes_of(inputs) - bytes_of(inputs[own()]),
          bytes_of(outputs) - bytes_of(outputs[own()]));
    return inner_->alltoall(outputs, inputs, options);
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    count(OperationKind::kBarrier, 0, 0);
    return inner_->barrier(options);
  }

  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    count(OperationKind::kBarrier, 0, 0);
    inner_->monitoredBarrier(options, wait_all_ranks);
  }

 private:
  size_t own() const { return static_cast<size_t>(getRank()); }

  /// A group of one rank has nobody to talk to.
  int64_t others(int64_t bytes) const { return getSize() == 1 ? 0 : bytes; }

  /// The bytes of all lists' tensors but this rank's own.
  int64_t bytes_of_others(const TensorLists& lists) const {
    int64_t bytes = 0;
    for (const Tensors& tensors : lists) {
      for (size_t rank = 0; rank < tensors.size(); ++rank) bytes += rank == own() ? 0 : bytes_of(tensors[rank]);
    }
    return bytes;
  }

  /// The bytes that this rank keeps for itself; an empty split list means even splits to c10d.
  int64_t own_bytes(const at::Tensor& tensor, const std::vector<int64_t>& splits) const {
    if (splits.empty()) return bytes_of(tensor) / getSize();
    return tensor.size(0) == 0 ? 0 : bytes_of(tensor) / tensor.size(0) * splits[own()];
  }

  void count(OperationKind kind, int64_t sent, int64_t received) { counters_->add(kind, {1, sent, received}); }

  void count_rooted(OperationKind kind, int64_t root, int64_t root_sent, int64_t root_received, int64_t other_sent,
                    int64_t other_received) {
    const bool is_root = root == getRank();
    count(kind, is_root ? root_sent : other_sent, is_root ? root_received : other_received);
  }

  void count_all_reduce(const Tensors& tensors) {
    const int64_t bytes = 2 * (bytes_of(tensors) - bytes_of(tensors) / getSize());
    count(OperationKind::kAllReduce, bytes, bytes);
  }

  BackendPtr inner_;
  std::shared_ptr<CommunicationCounters> counters_;
};

}  // namespace

std::string_view to_string(OperationKind kind) {
  switch (kind) {
    case OperationKind::kSend:
      return "send";
    case OperationKind::kReceive:
      return "receive";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kAllReduce:
      return "all_reduce";
    case OperationKind::kReduce:
      return "reduce";
    case OperationKind::kAllGather:
      return "all_gather";
    case OperationKind::kGather:
      return "gather";
    case OperationKind::kScatter:
      return "scatter";
    case OperationKind::kReduceScatter:
      return "reduce_scatter";
    case OperationKind::kAllToAll:
      return "all_to_all";
    case OperationKind::kBarrier:
      return "barrier";
  }
  raise(ErrorCode::kInternal, "OperationKind has no such value");
}

OperationCount& OperationCount::operator+=(const OperationCount& other) {
  calls += other.calls;
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
  return *this;
}

OperationCount CommunicationCounters::of(OperationKind kind) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<size_t>(kind)];
}

OperationCount CommunicationCounters::total() const {
  const std::lock_guard lock(mutex_);
  OperationCount total;
  for (const OperationCount& count : counts_) total += count;
  return total;
}

std::string CommunicationCounters::to_string() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (size_t kind = 0; kind < counts_.size(); ++kind) {
    const OperationCount& count = counts_[kind];
    if (count.calls == 0) continue;
    text += str_cat(hyper_parallel::to_string(static_cast<OperationKind>(kind)), ": ", count.calls, " calls, ",
                    count.bytes_sent, " bytes sent, ", count.bytes_received, " bytes received\n");
  }
  return text;
}

void CommunicationCounters::add(OperationKind kind, const OperationCount& count) {
  const std::lock_guard lock(mutex_);
  counts_[static_cast<size_t>(kind)] += count;
}

void CommunicationCounters::reset() {
  const std::lock_guard lock(mutex_);
  counts_ = {};
}

CountedGroup wrap_counting(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  HP_CHECK(group, kType, "wrap_counting: group is null but must be a process group");
  auto counters = std::make_shared<CommunicationCounters>();
  auto counted = c10::make_intrusive<c10d::ProcessGroup>(group->getStore(), group->getRank(), group->getSize());
  for (const c10::Device& device : group->getDeviceTypes()) {
    const BackendPtr inner = group->getBackend(device.type());
    counted->setBackend(device.type(), c10d::ProcessGroup::strToBackendType(inner->getBackendName()),
                        c10::make_intrusive<CountingBackend>(inner, counters));
  }
  counted->setDefaultBackend(group->getBackendType());
  if (group->hasBackends()) counted->setGroupName(group->getGroupName());
  return {std::move(counted), std::move(counters)};
}

}  // namespace hyper_parallel
