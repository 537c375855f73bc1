#include "hyper_parallel/torch/messages.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

enum class Direction { kSend, kReceive };

int64_t bytes_of(const Message& message) {
  return message.tensor.numel() * static_cast<int64_t>(message.tensor.element_size());
}

void check_message(const c10d::ProcessGroup& group, const Message& message, Direction direction) {
  const std::string_view list = direction == Direction::kSend ? "send" : "receive";
  HP_CHECK(0 <= message.peer && message.peer < group.getSize(), kInvalidArgument, "exchange_messages: ", list,
           " peer is ", message.peer, " but must be in [0, ", group.getSize(), ")");
  HP_CHECK(message.peer != group.getRank(), kInvalidArgument, "exchange_messages: ", list, " peer is ", message.peer,
           ", this rank itself; copy locally instead");
  const at::Tensor& tensor = message.tensor;
  HP_CHECK(tensor.defined() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(), kInvalidArgument,
           "exchange_messages: ", list, " tensor for peer ", message.peer,
           " must be contiguous and without lazy conjugation or negation");
}

/// Messages match only if their sizes are equal, since the size is the tag: ranks that disagree time out, where equal
/// tags would let a short message silently fill the head of a longer buffer. Sizes a multiple of 2^30 bytes apart share
/// a tag. The offset keeps clear of the small tags that programs use for their own messages on the same group.
int message_tag(const Message& message) {
  constexpr int64_t kFirstTag = int64_t{1} << 30;
  return static_cast<int>(kFirstTag + bytes_of(message) % kFirstTag);
}

[[noreturn]] void raise_failed(const c10d::ProcessGroup& group, const Message& message, Direction direction,
                               std::string_view reason) {
  const bool is_send = direction == Direction::kSend;
  raise(ErrorCode::kFailedPrecondition, "exchange_messages: rank ", group.getRank(), " of ", group.getSize(),
        " could not ", is_send ? "send " : "receive ", bytes_of(message), " bytes ", is_send ? "to" : "from", " rank ",
        message.peer, ": ", reason);
}

/// Runs a backend call about `message`; whatever it throws becomes kFailedPrecondition.
template <typename Call>
auto with_context(const c10d::ProcessGroup& group, const Message& message, Direction direction, Call call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    raise_failed(group, message, direction, error.what_without_backtrace());
  } catch (const std::exception& error) {
    raise_failed(group, message, direction, error.what());
  }
}

WorkPtr post(c10d::ProcessGroup& group, const Message& message, Direction direction) {
  return with_context(group, message, direction, [&] {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> tensors{message.tensor};
    const int peer = static_cast<int>(message.peer);
    const int tag = message_tag(message);
    return direction == Direction::kSend ? group.send(tensors, peer, tag) : group.recv(tensors, peer, tag);
  });
}

void wait(const c10d::ProcessGroup& group, const Message& message, Direction direction, const WorkPtr& work) {
  const bool done = with_context(group, message, direction, [&] { return work->wait(); });
  if (!done) raise_failed(group, message, direction, "the backend aborted the operation");
}

/// Every message posted on its own.
void exchange_singly(c10d::ProcessGroup& group, std::span<const Message> sends, std::span<const Message> receives,
                     const std::function<void()>& meanwhile) {
  MessageQueue queue(group);
  for (const Message& message : receives) queue.receive(message);
  for (const Message& message : sends) queue.send(message);
  if (meanwhile) meanwhile();
  queue.finish();
}

/// The messages that have elements, receives first, each with its direction.
std::vector<std::pair<Message, Direction>> nonempty(std::span<const Message> sends, std::span<const Message> receives) {
  std::vector<std::pair<Message, Direction>> round;
  for (const Message& message : receives) {
    if (message.tensor.numel() > 0) round.emplace_back(message, Direction::kReceive);
  }
  for (const Message& message : sends) {
    if (message.tensor.numel() > 0) round.emplace_back(message, Direction::kSend);
  }
  return round;
}

/// Closes the bracket of a coalesced round that failed; the error that counts is the first one.
void end_coalescing_quietly(c10d::ProcessGroup& group, c10::DeviceType device) {
  try {
    group.endCoalescing(device);
  } catch (const std::exception&) {
  }
}

/// The whole round as one group call, for backends whose single sends and receives could block each other.
void exchange_coalesced(c10d::ProcessGroup& group, c10::DeviceType device,
                        const std::vector<std::pair<Message, Direction>>& round,
                        const std::function<void()>& meanwhile) {
  std::vector<WorkPtr> works;
  group.startCoalescing(device);
  try {
    for (const auto& [message, direction] : round) works.push_back(post(group, message, direction));
  } catch (...) {
    end_coalescing_quietly(group, device);
    throw;
  }
  // One work stands for the whole round, and in error texts its first message.
  const auto& [message, direction] = round.front();
  const WorkPtr work = with_context(group, message, direction, [&] { return group.endCoalescing(device); });
  if (meanwhile) meanwhile();
  if (work) wait(group, message, direction, work);
}

}  // namespace

struct MessageQueue::InFlight {
  Message message;
  WorkPtr work;
};

MessageQueue::MessageQueue(c10d::ProcessGroup& group) : group_(group) {}

// Gloo's works detach their memory from the connection when they are destroyed, before the caller's tensors can be.
MessageQueue::~MessageQueue() = default;

void MessageQueue::send(const Message& message) {
  check_message(group_, message, Direction::kSend);
  if (message.tensor.numel() == 0) return;
  sends_.push_back({message, post(group_, message, Direction::kSend)});
}

void MessageQueue::receive(const Message& message) {
  check_message(group_, message, Direction::kReceive);
  if (message.tensor.numel() == 0) return;
  receives_.push_back({message, post(group_, message, Direction::kReceive)});
}

void MessageQueue::wait_next_receive() {
  HP_DCHECK(!receives_.empty());
  const InFlight& next = receives_.front();
  wait(group_, next.message, Direction::kReceive, next.work);
  receives_.pop_front();
}

void MessageQueue::finish() {
  while (!receives_.empty()) wait_next_receive();
  for (; !sends_.empty(); sends_.pop_front()) {
    wait(group_, sends_.front().message, Direction::kSend, sends_.front().work);
  }
}

void exchange_messages(c10d::ProcessGroup& group, std::span<const Message> sends, std::span<const Message> receives,
                       const std::function<void()>& meanwhile) {
  for (const Message& message : sends) check_message(group, message, Direction::kSend);
  for (const Message& message : receives) check_message(group, message, Direction::kReceive);
  const auto round = nonempty(sends, receives);
  if (round.empty()) {
    if (meanwhile) meanwhile();
    return;
  }
  const c10::DeviceType device = round.front().first.tensor.device().type();
  HP_CHECK(group.hasBackendForDeviceType(device), kFailedPrecondition,
           "exchange_messages: the group has no backend for ", c10::DeviceTypeName(device, true), " tensors");
  if (group.getBackend(device)->supportsCoalescing()) {
    exchange_coalesced(group, device, round, meanwhile);
  } else {
    exchange_singly(group, sends, receives, meanwhile);
  }
}

}  // namespace hyper_parallel
