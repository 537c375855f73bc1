#include "hyper_parallel/torch/group_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/group_calls.h"
#include "hyper_parallel/torch/messages.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kCoordinator = 0;

/// The text's own memory as a tensor of bytes.
at::Tensor byte_view(std::string& text) {
  return at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::TensorOptions().dtype(at::kByte));
}

at::Tensor size_tensor(int64_t size) { return at::empty({1}, at::TensorOptions().dtype(at::kLong)).fill_(size); }

void send_texts(c10d::ProcessGroup& group, const std::vector<std::pair<int64_t, std::string*>>& texts) {
  std::vector<Message> sizes;
  std::vector<Message> contents;
  for (const auto& [peer, text] : texts) {
    sizes.push_back({peer, size_tensor(static_cast<int64_t>(text->size()))});
    contents.push_back({peer, byte_view(*text)});
  }
  exchange_messages(group, sizes, {});
  exchange_messages(group, contents, {});
}

void receive_texts(c10d::ProcessGroup& group, const std::vector<std::pair<int64_t, std::string*>>& texts) {
  std::vector<Message> sizes;
  for (const auto& [peer, text] : texts) sizes.push_back({peer, size_tensor(0)});
  exchange_messages(group, {}, sizes);
  std::vector<Message> contents;
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].second->resize(static_cast<size_t>(*sizes[i].tensor.const_data_ptr<int64_t>()));
    contents.push_back({texts[i].first, byte_view(*texts[i].second)});
  }
  exchange_messages(group, {}, contents);
}

}  // namespace

GroupExchange::GroupExchange(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {
  check_group("checkpoint", group_);
  HP_CHECK(group_->hasBackendForDeviceType(c10::DeviceType::CPU), kFailedPrecondition,
           "checkpoint: the process group has no backend for CPU tensors, over which its messages go; pass a Gloo "
           "group of the same ranks");
}

int64_t GroupExchange::rank() const { return group_->getRank(); }

int64_t GroupExchange::size() const { return group_->getSize(); }

std::vector<std::string> GroupExchange::gather(std::string message) {
  if (!is_coordinator()) {
    send_texts(*group_, {{kCoordinator, &message}});
    return {};
  }
  std::vector<std::string> messages(static_cast<size_t>(size()));
  std::vector<std::pair<int64_t, std::string*>> from;
  for (int64_t peer = 1; peer < size(); ++peer) from.emplace_back(peer, &messages[static_cast<size_t>(peer)]);
  receive_texts(*group_, from);
  messages[kCoordinator] = std::move(message);
  return messages;
}

std::string GroupExchange::scatter(std::vector<std::string> messages) {
  if (!is_coordinator()) {
    std::string mine;
    receive_texts(*group_, {{kCoordinator, &mine}});
    return mine;
  }
  HP_CHECK(static_cast<int64_t>(messages.size()) == size(), kInvalidArgument, "scatter got ", messages.size(),
           " messages but the group has ", size(), " ranks");
  std::vector<std::pair<int64_t, std::string*>> to;
  for (int64_t peer = 1; peer < size(); ++peer) to.emplace_back(peer, &messages[static_cast<size_t>(peer)]);
  send_texts(*group_, to);
  return std::move(messages[kCoordinator]);
}

std::string GroupExchange::broadcast(std::string message) {
  std::string received;
  std::vector<std::pair<int64_t, std::string*>> to;
  for (int64_t peer = 1; peer < size(); ++peer) to.emplace_back(peer, &message);
  if (is_coordinator()) {
    send_texts(*group_, to);
    return message;
  }
  receive_texts(*group_, {{kCoordinator, &received}});
  return received;
}

}  // namespace hyper_parallel
