#pragma once

// An Exchange of two ranks that are processes: over one socket pair, with a time limit for each message.

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/exchange.h"

namespace hyper_parallel {

class SocketExchange final : public Exchange {
 public:
  /// `socket` is this rank's end, which stays the caller's.
  SocketExchange(int64_t rank, int socket, std::chrono::milliseconds limit)
      : rank_(rank), socket_(socket), limit_(limit) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return 2; }

  std::vector<std::string> gather(std::string message) override {
    if (is_coordinator()) {
      std::vector<std::string> messages{std::move(message)};
      messages.push_back(receive());
      return messages;
    }
    send(message);
    return {};
  }

  std::string scatter(std::vector<std::string> messages) override {
    if (!is_coordinator()) return receive();
    send(messages.at(1));
    return std::move(messages.at(0));
  }

 private:
  void send(const std::string& message) {
    const auto size = static_cast<uint64_t>(message.size());
    send_all(std::string(reinterpret_cast<const char*>(&size), sizeof size) + message);
  }

  void send_all(const std::string& bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
      await(POLLOUT);
      const ssize_t count = ::send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      HP_CHECK(count >= 0 || errno == EAGAIN, kFailedPrecondition, "rank ", 1 - rank_, " is gone");
      done += static_cast<size_t>(std::max<ssize_t>(count, 0));
    }
  }

  std::string receive() {
    uint64_t size = 0;
    const std::string head = receive_all(sizeof size);
    std::copy(head.begin(), head.end(), reinterpret_cast<char*>(&size));
    return receive_all(size);
  }

  std::string receive_all(size_t size) {
    std::string bytes(size, '\0');
    size_t done = 0;
    while (done < size) {
      await(POLLIN);
      const ssize_t count = ::recv(socket_, bytes.data() + done, size - done, 0);
      HP_CHECK(count > 0, kFailedPrecondition, "rank ", 1 - rank_, " is gone");
      done += static_cast<size_t>(count);
    }
    return bytes;
  }

  void await(short events) {
    pollfd waiting{socket_, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(limit_.count()));
    HP_CHECK(ready > 0, kFailedPrecondition, "rank ", 1 - rank_, " did not answer within ", limit_.count(), " ms");
  }

  int64_t rank_;
  int socket_;
  std::chrono::milliseconds limit_;
};

}  // namespace hyper_parallel
