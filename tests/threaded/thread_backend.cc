#include "tests/threaded/thread_backend.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <tuple>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel::test {
namespace {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// One end of a message. Guarded by the fabric's mutex. It does not keep its memory alive: that is the caller's duty.
struct Transfer {
  void* data = nullptr;
  int64_t bytes = 0;
  bool done = false;
  std::string error;
};

using TransferPtr = std::shared_ptr<Transfer>;

TransferPtr transfer_of(const at::Tensor& tensor) {
  auto transfer = std::make_shared<Transfer>();
  transfer->data = tensor.data_ptr();
  transfer->bytes = tensor.numel() * static_cast<int64_t>(tensor.element_size());
  return transfer;
}

/// The ends that still wait for their counterpart; at most one of the two queues is not empty.
struct Channel {
  std::deque<TransferPtr> sends;
  std::deque<TransferPtr> receives;
};

/// What one rank brings to a collective.
struct Part {
  Tensors inputs;
  Tensors outputs;
};

using Perform = std::function<void(std::vector<Part>&)>;

/// One collective, as far as its ranks have come.
struct Round {
  std::string signature;
  std::vector<Part> parts;
  int arrived = 0;
  bool done = false;
  std::string error;
};

/// What the ranks of one group share: the messages under way and the collectives that have begun.
class Fabric {
 public:
  Fabric(int size, std::chrono::milliseconds timeout) : size_(size), timeout_(timeout) {}

  TransferPtr post_send(int source, int destination, int tag, const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    Channel& channel = channels_[{source, destination, tag}];
    auto send = transfer_of(tensor);
    if (channel.receives.empty()) {
      channel.sends.push_back(send);
    } else {
      deliver(*send, *channel.receives.front());
      channel.receives.pop_front();
    }
    return send;
  }

  TransferPtr post_receive(int source, int destination, int tag, const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    Channel& channel = channels_[{source, destination, tag}];
    auto receive = transfer_of(tensor);
    if (channel.sends.empty()) {
      channel.receives.push_back(receive);
    } else {
      deliver(*channel.sends.front(), *receive);
      channel.sends.pop_front();
    }
    return receive;
  }

  bool is_done(const Transfer& transfer) {
    const std::lock_guard lock(mutex_);
    return transfer.done;
  }

  void wait(const TransferPtr& transfer, const std::string& what) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout_, [&] { return transfer->done; });
    if (!transfer->done) {
      withdraw(transfer);
      transfer->error = str_cat("timed out after ", timeout_.count(), " ms");
    }
    TORCH_CHECK(transfer->error.empty(), what, ": ", transfer->error);
  }

  /// After this the tensor of `transfer` is not touched any more.
  void abandon(const TransferPtr& transfer) {
    const std::lock_guard lock(mutex_);
    if (!transfer->done) withdraw(transfer);
  }

  /// Joins collective number `sequence`; the last rank to arrive moves the data of all.
  void join(int64_t sequence, int rank, const std::string& signature, Part part, const Perform& perform) {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<Round> round = enter(sequence, rank, signature, std::move(part));
    if (round->arrived == size_ && !round->done) {
      finish(*round, perform);
      rounds_.erase(sequence);
    }
    changed_.wait_for(lock, timeout_, [&] { return round->done; });
    if (!round->done) {
      round->done = true;
      round->error = str_cat(round->arrived, " of ", size_, " ranks came within ", timeout_.count(), " ms");
      changed_.notify_all();
    }
    TORCH_CHECK(round->error.empty(), signature, ": ", round->error);
  }

 private:
  void deliver(Transfer& send, Transfer& receive) {
    if (send.bytes == receive.bytes) {
      std::memcpy(receive.data, send.data, static_cast<size_t>(send.bytes));
    } else {
      send.error = receive.error = str_cat("a message of ", send.bytes, " bytes met a buffer of ", receive.bytes);
    }
    send.done = receive.done = true;
    changed_.notify_all();
  }

  void withdraw(const TransferPtr& transfer) {
    for (auto& [key, channel] : channels_) {
      std::erase(channel.sends, transfer);
      std::erase(channel.receives, transfer);
    }
    transfer->done = true;
  }

  std::shared_ptr<Round> enter(int64_t sequence, int rank, const std::string& signature, Part part) {
    std::shared_ptr<Round>& round = rounds_[sequence];
    if (!round) {
      round = std::make_shared<Round>();
      round->signature = signature;
      round->parts.resize(static_cast<size_t>(size_));
    }
    if (round->signature != signature && !round->done) {
      round->error = str_cat("the ranks disagree: '", round->signature, "' and '", signature, "'");
      round->done = true;
      changed_.notify_all();
    }
    round->parts[static_cast<size_t>(rank)] = std::move(part);
    ++round->arrived;
    return round;
  }

  void finish(Round& round, const Perform& perform) {
    try {
      const at::NoGradGuard no_grad;
      perform(round.parts);
    } catch (const c10::Error& error) {
      round.error = error.what_without_backtrace();
    } catch (const std::exception& error) {
      round.error = error.what();
    }
    round.done = true;
    changed_.notify_all();
  }

  const int size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, int>, Channel> channels_;
  std::map<int64_t, std::shared_ptr<Round>> rounds_;
};

/// A posted message. Like Gloo's, it lets go of its memory when it is destroyed before it was waited for.
class MessageWork final : public c10d::Work {
 public:
  MessageWork(std::shared_ptr<Fabric> fabric, TransferPtr transfer, std::string what)
      : fabric_(std::move(fabric)), transfer_(std::move(transfer)), what_(std::move(what)) {}
  ~MessageWork() override { fabric_->abandon(transfer_); }

  bool isCompleted() override { return fabric_->is_done(*transfer_); }
  bool wait(std::chrono::milliseconds) override {
    fabric_->wait(transfer_, what_);
    return true;
  }

 private:
  std::shared_ptr<Fabric> fabric_;
  TransferPtr transfer_;
  std::string what_;
};

class FinishedWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

void copy_same_size(const at::Tensor& target, const at::Tensor& source) {
  TORCH_CHECK(target.numel() == source.numel() && target.scalar_type() == source.scalar_type(), "a piece of ",
              source.numel(), " elements met a place for ", target.numel());
  target.copy_(source.view(target.sizes()));
}

at::Tensor combine(const at::Tensor& left, const at::Tensor& right, c10d::ReduceOp op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG:
      return left + right;
    case c10d::ReduceOp::MAX:
      return at::maximum(left, right);
    case c10d::ReduceOp::MIN:
      return at::minimum(left, right);
    default:
      TORCH_CHECK(false, "the threaded backend does not have this reduction");
  }
}

/// The terms reduced in rank order.
at::Tensor reduce_terms(const Tensors& terms, c10d::ReduceOp op) {
  at::Tensor result = terms.front();
  for (size_t i = 1; i < terms.size(); ++i) result = combine(result, terms[i], op);
  return op == c10d::ReduceOp::AVG ? result / static_cast<int64_t>(terms.size()) : result;
}

class ThreadBackend final : public c10d::Backend {
 public:
  ThreadBackend(std::shared_ptr<Fabric> fabric, int rank, int size, const ThreadGroupOptions& options)
      : Backend(rank, size), fabric_(std::move(fabric)), name_(options.backend_name) {
    options_ = c10::make_intrusive<Options>(name_, options.timeout);
  }

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    const at::Tensor& tensor = single(tensors);
    return message(fabric_->post_send(getRank(), destination, tag, tensor), str_cat("send to rank ", destination));
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    const at::Tensor& tensor = single(tensors);
    return message(fabric_->post_receive(source, getRank(), tag, tensor), str_cat("receive from rank ", source));
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const auto root = static_cast<size_t>(options.rootRank);
    return collective(str_cat("broadcast from ", root), {{}, {single(tensors)}}, [root](std::vector<Part>& parts) {
      for (Part& part : parts) copy_same_size(part.outputs[0], parts[root].outputs[0]);
    });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const c10d::ReduceOp op = options.reduceOp;
    return collective("allreduce", {{}, {single(tensors)}}, [op](std::vector<Part>& parts) {
      Tensors terms;
      for (Part& part : parts) terms.push_back(part.outputs[0]);
      const at::Tensor result = reduce_terms(terms, op).clone();
      for (Part& part : parts) copy_same_size(part.outputs[0], result);
    });
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    return gather_all({single(inputs)}, outputs.at(0));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    return gather_all({input}, output.view(-1).chunk(getSize()));
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    return scatter_reduced(inputs.at(0), single(outputs), options.reduceOp);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return scatter_reduced(input.view(-1).chunk(getSize()), output, options.reduceOp);
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) override {
    return collective("alltoall", {pieces(input, input_splits), pieces(output, output_splits)},
                      [](std::vector<Part>& parts) {
                        for (size_t to = 0; to < parts.size(); ++to) {
                          for (size_t from = 0; from < parts.size(); ++from) {
                            copy_same_size(parts[to].outputs[from], parts[from].inputs[to]);
                          }
                        }
                      });
  }

  WorkPtr barrier(const c10d::BarrierOptions&) override {
    return collective("barrier", {}, [](std::vector<Part>&) {});
  }

 private:
  static const at::Tensor& single(const Tensors& tensors) {
    TORCH_CHECK(tensors.size() == 1, "the threaded backend takes one tensor, not ", tensors.size());
    TORCH_CHECK(tensors[0].is_contiguous(), "the threaded backend takes contiguous tensors only");
    return tensors[0];
  }

  Tensors pieces(const at::Tensor& tensor, const std::vector<int64_t>& splits) const {
    return splits.empty() ? tensor.chunk(getSize()) : tensor.split_with_sizes(splits);
  }

  WorkPtr message(TransferPtr transfer, const std::string& what) const {
    return c10::make_intrusive<MessageWork>(fabric_, std::move(transfer), str_cat("rank ", getRank(), " ", what));
  }

  WorkPtr gather_all(Tensors input, Tensors outputs) {
    return collective("allgather", {std::move(input), std::move(outputs)}, [](std::vector<Part>& parts) {
      for (Part& part : parts) {
        for (size_t from = 0; from < parts.size(); ++from) copy_same_size(part.outputs.at(from), parts[from].inputs[0]);
      }
    });
  }

  WorkPtr scatter_reduced(Tensors inputs, const at::Tensor& output, c10d::ReduceOp op) {
    return collective("reduce_scatter", {std::move(inputs), {output}}, [op](std::vector<Part>& parts) {
      for (size_t to = 0; to < parts.size(); ++to) {
        Tensors terms;
        for (Part& part : parts) terms.push_back(part.inputs.at(to));
        copy_same_size(parts[to].outputs[0], reduce_terms(terms, op));
      }
    });
  }

  /// Blocks until the collective is over, so that its work is finished when the caller gets it.
  WorkPtr collective(const std::string& signature, Part part, const Perform& perform) {
    fabric_->join(sequence_++, getRank(), signature, std::move(part), perform);
    return c10::make_intrusive<FinishedWork>();
  }

  std::shared_ptr<Fabric> fabric_;
  std::string name_;
  c10::intrusive_ptr<Options> options_;
  int64_t sequence_ = 0;
};

/// Hands every member of a subgroup its process group; the first to ask makes them all.
class Subgroups {
 public:
  explicit Subgroups(ThreadGroupOptions options) : options_(std::move(options)) {}

  GroupPtr take(int world_rank, const std::vector<int>& members) {
    const auto own = std::find(members.begin(), members.end(), world_rank);
    HP_CHECK(own != members.end(), kInvalidArgument, "rank ", world_rank, " is not in subgroup ", tuple_text(members));
    const std::lock_guard lock(mutex_);
    // Asking again for the same members gives a new group.
    const int asked = asked_[{world_rank, members}]++;
    std::vector<GroupPtr>& groups = groups_[{asked, members}];
    if (groups.empty()) {
      ThreadGroupOptions options = options_;
      options.group_name = str_cat("subgroup ", tuple_text(members), " #", asked);
      groups = create_thread_groups(static_cast<int>(members.size()), options);
    }
    return groups[static_cast<size_t>(own - members.begin())];
  }

 private:
  const ThreadGroupOptions options_;
  std::mutex mutex_;
  std::map<std::pair<int, std::vector<int>>, int> asked_;
  std::map<std::pair<int, std::vector<int>>, std::vector<GroupPtr>> groups_;
};

std::exception_ptr run_catching(const std::function<void(const ThreadRank&)>& body, const ThreadRank& rank) {
  try {
    body(rank);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

std::vector<GroupPtr> create_thread_groups(int size, const ThreadGroupOptions& options) {
  const auto fabric = std::make_shared<Fabric>(size, options.timeout);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(options.timeout);
  const auto type = c10d::ProcessGroup::strToBackendType(options.backend_name);
  std::vector<GroupPtr> groups;
  for (int rank = 0; rank < size; ++rank) {
    auto own_store = c10::make_intrusive<c10d::PrefixStore>(options.group_name, store);
    auto group = c10::make_intrusive<c10d::ProcessGroup>(own_store, rank, size);
    group->setBackend(c10::DeviceType::CPU, type, c10::make_intrusive<ThreadBackend>(fabric, rank, size, options));
    group->setDefaultBackend(type);
    group->setGroupName(options.group_name);
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<std::exception_ptr> run_ranks_collecting(int size, const std::function<void(const ThreadRank&)>& body,
                                                     const ThreadGroupOptions& options) {
  const std::vector<GroupPtr> groups = create_thread_groups(size, options);
  Subgroups subgroups(options);
  std::vector<std::exception_ptr> thrown(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto subgroup = [&subgroups, rank](const std::vector<int>& members) {
        return subgroups.take(rank, members);
      };
      const auto index = static_cast<size_t>(rank);
      thrown[index] = run_catching(body, ThreadRank{rank, size, groups[index], subgroup});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

void run_ranks(int size, const std::function<void(const ThreadRank&)>& body, const ThreadGroupOptions& options) {
  const auto thrown = run_ranks_collecting(size, body, options);
  std::optional<ErrorCode> code;
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < thrown.size(); ++rank) {
    if (!thrown[rank]) continue;
    try {
      std::rethrow_exception(thrown[rank]);
    } catch (const Error& error) {
      if (!code) code = error.code();
      texts.push_back(str_cat("rank ", rank, ": ", error.what()));
    } catch (const std::exception& error) {
      if (!code) code = ErrorCode::kInternal;
      texts.push_back(str_cat("rank ", rank, ": ", error.what()));
    }
  }
  if (code) throw Error(*code, join(texts, "\n"));
}

}  // namespace hyper_parallel::test
