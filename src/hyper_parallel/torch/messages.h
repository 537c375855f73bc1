#pragma once

// The transport under every plan step and every variable collective: one round of point-to-point messages.
//
// A round is a set of sends and receives of this rank. It matches the rounds of the peers if, for each ordered pair
// (a, b), the non-empty messages that a sends to b and those that b receives from a are equally many and, in order, of
// equal size. Messages of unequal size are never matched: they wait until the group's timeout, and no rank gets wrong
// data.
//
// Tensors are sent from and received into the memory they view, without a copy, on backends that allow it (Gloo does).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <list>
#include <span>

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel {

/// `tensor` goes to, or is filled by, the member `peer` (a group-relative rank, not this one). It must be contiguous
/// and may be a view at any offset. A message without elements is skipped by both sides.
struct Message {
  int64_t peer;
  at::Tensor tensor;
};

/// Exchanges the messages with the peers of `group`: posts all receives, posts all sends, runs `meanwhile` (local
/// copies, which overlap with the communication), then waits for all. Backends that coalesce, such as NCCL, get the
/// whole round as one group call. No autograd.
///
/// Throws kInvalidArgument for a peer outside the group, this rank itself or a tensor that is not contiguous, all
/// before anything is posted; kFailedPrecondition with rank, peer and bytes when the backend fails or times out. On a
/// failure the messages still in flight are abandoned, no memory of theirs is touched after the return, and the group
/// must not be used any more. Example: exchange_messages(group, {{{1, ours}}}, {{{1, theirs}}}, [&] { own.copy_(input);
/// });
void exchange_messages(c10d::ProcessGroup& group, std::span<const Message> sends, std::span<const Message> receives,
                       const std::function<void()>& meanwhile = {});

/// Messages posted one at a time, for algorithms that work on one piece while the next is on its way. Only for backends
/// whose messages do not block each other, such as Gloo. Checks and throws as `exchange_messages` does; destroying the
/// queue abandons what is in flight.
///
///   queue.receive({0, first}); queue.receive({0, second}); queue.send({0, ours});
///   queue.wait_next_receive();  use(first);
///   queue.finish();             use(second);
class MessageQueue {
 public:
  explicit MessageQueue(c10d::ProcessGroup& group);
  ~MessageQueue();
  MessageQueue(const MessageQueue&) = delete;
  MessageQueue& operator=(const MessageQueue&) = delete;

  void send(const Message& message);
  void receive(const Message& message);
  /// Waits for the earliest posted receive that has not been waited for; a message without elements counts as none.
  void wait_next_receive();
  /// Waits for everything still in flight.
  void finish();

 private:
  struct InFlight;
  c10d::ProcessGroup& group_;
  std::list<InFlight> sends_;
  std::list<InFlight> receives_;
};

}  // namespace hyper_parallel
