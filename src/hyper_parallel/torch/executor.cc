#include "hyper_parallel/torch/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/messages.h"
#include "hyper_parallel/torch/reduce_round.h"

namespace hyper_parallel {
namespace {

at::IntArrayRef array_ref(const Dims& dims) { return {dims.data(), dims.size()}; }

/// The cells of `view` in a flat, contiguous tensor.
at::Tensor view_of(const at::Tensor& flat, const StridedView& view) {
  if (view.is_contiguous()) return flat.narrow(0, view.offset, view.sizes[0]);
  return at::as_strided(flat, array_ref(view.sizes), array_ref(view.strides), flat.storage_offset() + view.offset);
}

/// Copies the cells of one view to those of another. Both collapsed their dims on their own, so their shapes may
/// differ.
void copy_cells(const at::Tensor& to, const at::Tensor& from) {
  if (to.is_contiguous()) {
    to.view(from.sizes()).copy_(from);
  } else {
    to.copy_(from.reshape(to.sizes()));
  }
}

/// The pieces end to end: a view of `flat` where they already lie so, else a packed copy.
at::Tensor packed(const at::Tensor& flat, const std::vector<StridedView>& pieces, int64_t numel) {
  if (pieces.size() == 1 && pieces.front().is_contiguous()) return view_of(flat, pieces.front());
  at::Tensor message = at::empty({numel}, flat.options());
  int64_t offset = 0;
  for (const StridedView& piece : pieces) {
    const at::Tensor cells = view_of(flat, piece);
    message.narrow(0, offset, cells.numel()).view(cells.sizes()).copy_(cells);
    offset += cells.numel();
  }
  return message;
}

void unpack(const at::Tensor& message, const at::Tensor& flat, const std::vector<StridedView>& pieces) {
  int64_t offset = 0;
  for (const StridedView& piece : pieces) {
    at::Tensor cells = view_of(flat, piece);
    cells.copy_(message.narrow(0, offset, cells.numel()).view(cells.sizes()));
    offset += cells.numel();
  }
}

std::vector<Message> packed_sends(const RankStep& step, const at::Tensor& source,
                                  const MeshCommunicator& communicator) {
  std::vector<Message> sends;
  sends.reserve(step.sends.size());
  for (size_t i = 0; i < step.sends.size(); ++i) {
    const Transfer& send = step.sends[i];
    // A gather sends the same cells to every peer: pack them once.
    const bool repeated = i > 0 && send.pieces == step.sends[i - 1].pieces;
    sends.push_back(
        {communicator.group_rank(send.peer), repeated ? sends.back().tensor : packed(source, send.pieces, send.numel)});
  }
  return sends;
}

at::Tensor run_move(const RankStep& step, const at::Tensor& source, const MeshCommunicator& communicator) {
  at::Tensor target = at::empty({step.target_numel}, source.options());
  std::vector<Message> receives;
  receives.reserve(step.receives.size());
  for (const Transfer& receive : step.receives) {
    receives.push_back({communicator.group_rank(receive.peer), receive.is_in_place()
                                                                   ? view_of(target, receive.pieces.front())
                                                                   : at::empty({receive.numel}, source.options())});
  }
  const auto copy_own = [&] {
    for (const LocalCopy& copy : step.copies) copy_cells(view_of(target, copy.to), view_of(source, copy.from));
  };
  if (step.sends.empty() && step.receives.empty()) {
    copy_own();
    return target;
  }
  const std::vector<Message> sends = packed_sends(step, source, communicator);
  exchange_messages(communicator.group(), sends, receives, copy_own);
  for (size_t i = 0; i < step.receives.size(); ++i) {
    if (!step.receives[i].is_in_place()) unpack(receives[i].tensor, target, step.receives[i].pieces);
  }
  return target;
}

Reduction reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return Reduction::kSum;
    case ReduceOp::kMax:
      return Reduction::kMax;
    case ReduceOp::kMin:
      return Reduction::kMin;
  }
  raise(ErrorCode::kInternal, "unknown reduce op");
}

/// Values in memory as they are: neither lazily conjugate or negative, nor zeros that have no memory, as autograd
/// makes.
at::Tensor with_plain_storage(const at::Tensor& local) {
  return local._is_zerotensor() ? at::zeros(local.sizes(), local.options()) : local.resolve_conj().resolve_neg();
}

at::Tensor run_reduce(const RankStep& step, const at::Tensor& source, const MeshCommunicator& communicator) {
  const Combine& combine = *step.combine;
  // Every member sends the same pieces of the region, in the same order; `order` is where they lie in the target.
  std::vector<StridedView> from;
  std::vector<StridedView> order;
  for (const LocalCopy& copy : step.copies) {
    from.push_back(copy.from);
    order.push_back(copy.to);
  }
  const at::Tensor none = at::empty({0}, source.options());
  ReduceRound round;
  for (const int64_t rank : combine.sources) {
    round.members.push_back(communicator.group_rank(rank));
    const auto send = std::ranges::find(step.sends, rank, &Transfer::peer);
    if (rank == communicator.rank()) {
      round.shares.push_back(packed(source, from, step.target_numel));
    } else {
      round.shares.push_back(send == step.sends.end() ? none : packed(source, send->pieces, send->numel));
    }
  }
  at::Tensor reduced = at::empty({step.target_numel}, source.options());
  reduce_shares(communicator.group(), round, reduction_of(combine.op), reduced);
  if (combine.divisor != 1) reduced.div_(combine.divisor);
  if (order.empty() || order == std::vector{run_view(0, step.target_numel)}) return reduced;
  at::Tensor target = at::empty({step.target_numel}, source.options());
  unpack(reduced, target, order);
  return target;
}

}  // namespace

at::Tensor execute(const RankPlan& plan, const at::Tensor& local, const MeshCommunicator& communicator) {
  if (plan.steps.empty()) return local;
  const at::NoGradGuard no_grad;
  for (const RankStep& step : plan.steps) {
    if (!step.combine) continue;
    check_reducible("redistribute", number_kind(local.scalar_type()), c10::toString(local.scalar_type()),
                    step.combine->op);
  }
  at::Tensor flat = with_plain_storage(local.detach()).contiguous().view({-1});
  for (const RankStep& step : plan.steps) {
    HP_DCHECK(flat.numel() == step.source_numel);
    flat = step.combine ? run_reduce(step, flat, communicator) : run_move(step, flat, communicator);
  }
  // Not a view to autograd: a leaf made of it must be writable in place as any leaf is.
  return at::_unsafe_view(flat, array_ref(plan.target_shape));
}

}  // namespace hyper_parallel
