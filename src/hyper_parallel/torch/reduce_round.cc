#include "hyper_parallel/torch/reduce_round.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/group_calls.h"
#include "hyper_parallel/torch/messages.h"

namespace hyper_parallel {
namespace {

/// Shares travel in pieces of this size: a piece is reduced while it is in the cache and the next one arrives.
constexpr int64_t kChunkBytes = int64_t{1} << 20;
/// How many pieces of each peer are on their way at a time.
constexpr int64_t kWindow = 3;

/// out = left (op) right; `out` may be either of them.
void reduce_into(at::Tensor& out, const at::Tensor& left, const at::Tensor& right, Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      at::add_out(out, left, right);
      return;
    case Reduction::kMax:
      at::maximum_out(out, left, right);
      return;
    case Reduction::kMin:
      at::minimum_out(out, left, right);
      return;
  }
}

/// Letters: n members, this one m; chunk c of a share is its elements [c * chunk_, (c+1) * chunk_), the last one
/// shorter.
///
/// Receives are posted, and so waited for, chunk by chunk and within a chunk in member order. The first peer's chunk
/// lands in the output itself, those of the others in `kWindow` slots per peer that are used over again.
class PipelinedReduce {
 public:
  PipelinedReduce(c10d::ProcessGroup& group, const ReduceRound& round, Reduction reduction, const at::Tensor& output)
      : members_(round.members),
        shares_(round.shares),
        size_(std::ssize(members_)),
        own_(std::ranges::find(members_, group.getRank()) - members_.begin()),
        first_peer_(own_ == 0 ? 1 : 0),
        reduction_(reduction),
        chunk_(std::max<int64_t>(1, kChunkBytes / static_cast<int64_t>(output.element_size()))),
        output_(output),
        queue_(group) {
    HP_DCHECK(own_ < size_ && std::ssize(shares_) == size_ && share_of(own_).numel() == output.numel());
  }

  void run() {
    const int64_t chunks = chunk_count(output_);
    if (chunks > 0 && size_ > 2) allocate_slots(std::min(kWindow, chunks));
    for (int64_t c = 0; c < std::min(kWindow, chunks); ++c) post_receives(c);
    post_sends();
    for (int64_t c = 0; c < chunks; ++c) {
      reduce_chunk(c);
      if (c + kWindow < chunks) post_receives(c + kWindow);
    }
    queue_.finish();
  }

 private:
  const at::Tensor& share_of(int64_t member) const { return shares_[static_cast<size_t>(member)]; }
  int64_t rank_of(int64_t member) const { return members_[static_cast<size_t>(member)]; }
  int64_t chunk_count(const at::Tensor& share) const { return ceil_div(share.numel(), chunk_); }

  at::Tensor chunk_of(const at::Tensor& share, int64_t c) const {
    return share.narrow(0, c * chunk_, std::min(chunk_, share.numel() - c * chunk_));
  }

  void allocate_slots(int64_t window) {
    slots_ = at::empty({window * size_, std::min(chunk_, output_.numel())}, output_.options());
  }

  /// Where chunk `c` of member `peer` is received.
  at::Tensor destination(int64_t c, int64_t peer) const {
    at::Tensor own = chunk_of(output_, c);
    if (peer == first_peer_) return own;
    return slots_.select(0, (c % kWindow) * size_ + peer).narrow(0, 0, own.numel());
  }

  void post_receives(int64_t c) {
    for (int64_t peer = 0; peer < size_; ++peer) {
      if (peer != own_) queue_.receive({rank_of(peer), destination(c, peer)});
    }
  }

  /// All chunks for all peers, chunk by chunk, so that every peer makes progress.
  void post_sends() {
    int64_t most = 0;
    for (int64_t peer = 0; peer < size_; ++peer) most = std::max(most, chunk_count(share_of(peer)));
    for (int64_t c = 0; c < most; ++c) {
      for (int64_t step = 1; step < size_; ++step) {
        const int64_t peer = (own_ + step) % size_;
        if (c < chunk_count(share_of(peer))) queue_.send({rank_of(peer), chunk_of(share_of(peer), c)});
      }
    }
  }

  /// ((x_0 + x_1) + x_2) + .. for one chunk, each term as it arrives.
  void reduce_chunk(int64_t c) {
    at::Tensor out = chunk_of(output_, c);
    const at::Tensor own = chunk_of(share_of(own_), c);
    for (int64_t source = 0; source < size_; ++source) {
      if (source != own_) queue_.wait_next_receive();
      if (source == first_peer_) {
        // x_1 lies in the output, x_0 is this rank's own term.
        if (own_ == 0) reduce_into(out, own, out, reduction_);
      } else if (source != own_) {
        reduce_into(out, out, destination(c, source), reduction_);
      } else if (own_ != 0) {
        reduce_into(out, out, own, reduction_);
      }
    }
  }

  const std::vector<int64_t>& members_;
  const std::vector<at::Tensor>& shares_;
  const int64_t size_;
  const int64_t own_;
  const int64_t first_peer_;
  const Reduction reduction_;
  const int64_t chunk_;
  const at::Tensor output_;
  at::Tensor slots_;
  // Behind the tensors: what is in flight must go before the memory it uses.
  MessageQueue queue_;
};

ReduceOp reduce_op(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ReduceOp::kSum;
    case Reduction::kMax:
      return ReduceOp::kMax;
    case Reduction::kMin:
      return ReduceOp::kMin;
  }
  raise(ErrorCode::kInternal, "Reduction has no such value");
}

/// For backends whose single messages could block each other: all shares first, then their reduction.
void reduce_after_exchange(c10d::ProcessGroup& group, const ReduceRound& round, Reduction reduction,
                           at::Tensor output) {
  std::vector<at::Tensor> terms = round.shares;
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (size_t member = 0; member < round.members.size(); ++member) {
    if (round.members[member] == group.getRank()) continue;
    terms[member] = at::empty_like(output);
    sends.push_back({round.members[member], round.shares[member]});
    receives.push_back({round.members[member], terms[member]});
  }
  exchange_messages(group, sends, receives);
  reduce_into(output, terms[0], terms[1], reduction);
  for (size_t member = 2; member < terms.size(); ++member) reduce_into(output, output, terms[member], reduction);
}

}  // namespace

std::string_view to_string(Reduction reduction) { return to_string(reduce_op(reduction)); }

NumberKind number_kind(at::ScalarType dtype) {
  if (dtype == at::kBool) return NumberKind::kBool;
  if (c10::isComplexType(dtype)) return NumberKind::kComplex;
  return c10::isIntegralType(dtype, /*includeBool=*/false) ? NumberKind::kInteger : NumberKind::kReal;
}

void check_reducible(std::string_view operation, at::ScalarType dtype, Reduction reduction) {
  check_reducible(operation, number_kind(dtype), c10::toString(dtype), reduce_op(reduction));
}

void reduce_shares(c10d::ProcessGroup& group, const ReduceRound& round, Reduction reduction, const at::Tensor& output) {
  if (round.members.size() == 1) {
    output.copy_(round.shares.front());
    return;
  }
  if (prefers_messages(group, output)) {
    PipelinedReduce(group, round, reduction, output).run();
  } else {
    reduce_after_exchange(group, round, reduction, output);
  }
}

}  // namespace hyper_parallel
