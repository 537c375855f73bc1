#include "hyper_parallel/checkpoint/exchange.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

// On the wire: kOk and the payload, or kFailed, the code and the message.
constexpr char kOk = '+';
constexpr char kFailed = '-';

struct Fault {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

std::string encode_payload(std::string_view payload) {
  std::string bytes;
  bytes.reserve(payload.size() + 1);
  bytes += kOk;
  return bytes.append(payload);
}

std::string encode_fault(const Fault& fault) {
  return std::string{kFailed, static_cast<char>(fault.code)}.append(fault.message);
}

std::optional<Fault> fault_in(std::string_view bytes) {
  HP_DCHECK(!bytes.empty() && (bytes[0] == kOk || bytes[0] == kFailed));
  if (bytes[0] == kOk) return std::nullopt;
  HP_DCHECK(bytes.size() >= 2 && bytes[1] >= 0 && bytes[1] <= static_cast<char>(ErrorCode::kInternal));
  return Fault{static_cast<ErrorCode>(bytes[1]), std::string(bytes.substr(2))};
}

// The payload of a message that `fault_in` has found good; a fault is thrown.
std::string payload_of(std::string bytes) {
  if (const auto fault = fault_in(bytes)) throw Error(fault->code, fault->message);
  bytes.erase(0, 1);
  return bytes;
}

// The exception that is handled right now, in a form that travels.
Fault current_fault() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kFailedPrecondition, "out of memory"};
  } catch (const std::exception& error) {
    return {ErrorCode::kInternal, error.what()};
  } catch (...) {
    return {ErrorCode::kInternal, "an exception that is no std::exception"};
  }
}

std::string run_local(const std::function<std::string()>& local) {
  try {
    return encode_payload(local());
  } catch (...) {
    return encode_fault(current_fault());
  }
}

// What all ranks are told if `local` failed on some; nothing if it failed on none.
std::optional<Fault> joint_fault(std::string_view step, const std::vector<std::string>& messages) {
  std::optional<Fault> joint;
  int64_t further = 0;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    auto fault = fault_in(messages[rank]);
    if (!fault) continue;
    if (joint) {
      ++further;
      continue;
    }
    joint = Fault{fault->code, str_cat(step, " failed on rank ", rank, ": ", fault->message)};
  }
  if (further > 0) joint->message += str_cat(" (and on ", further, further == 1 ? " other rank)" : " other ranks)");
  return joint;
}

std::vector<std::string> same_for_all(size_t size, const std::string& message) {
  return std::vector<std::string>(size, message);
}

// The coordinator's answers, one for each rank: faults are among them.
std::vector<std::string> answers_to(std::string_view step, std::vector<std::string> messages,
                                    const Coordinate& coordinate) {
  const size_t size = messages.size();
  if (const auto fault = joint_fault(step, messages)) return same_for_all(size, encode_fault(*fault));
  try {
    for (std::string& message : messages) message.erase(0, 1);
    std::vector<std::string> answers = coordinate(std::move(messages));
    HP_DCHECK(answers.size() == size);
    for (std::string& answer : answers) answer.insert(answer.begin(), kOk);
    return answers;
  } catch (...) {
    return same_for_all(size, encode_fault(current_fault()));
  }
}

}  // namespace

std::string Exchange::broadcast(std::string message) {
  if (!is_coordinator()) return scatter({});
  return scatter(same_for_all(static_cast<size_t>(size()), message));
}

std::string run_round(Exchange& exchange, std::string_view step, const std::function<std::string()>& local,
                      const Coordinate& coordinate) {
  std::vector<std::string> messages = exchange.gather(run_local(local));
  std::vector<std::string> answers;
  if (exchange.is_coordinator()) {
    HP_CHECK(static_cast<int64_t>(messages.size()) == exchange.size(), kInternal, "the exchange gathered ",
             messages.size(), " messages of ", exchange.size(), " ranks");
    answers = answers_to(step, std::move(messages), coordinate);
  }
  return payload_of(exchange.scatter(std::move(answers)));
}

void agree(Exchange& exchange, std::string_view step, const std::function<void()>& local) {
  run_round(
      exchange, step,
      [&] {
        local();
        return std::string();
      },
      [](std::vector<std::string> messages) { return messages; });
}

std::string announce(Exchange& exchange, const std::function<std::string()>& make) {
  std::string message;
  if (exchange.is_coordinator()) message = run_local(make);
  return payload_of(exchange.broadcast(std::move(message)));
}

}  // namespace hyper_parallel
