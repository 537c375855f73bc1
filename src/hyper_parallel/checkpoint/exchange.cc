#include "hyper_parallel/checkpoint/exchange.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

// On the wire. To the coordinator: the step, kStepEnd and an outcome; from it: an outcome. An outcome is kOk and the
// payload, or kFailed, the code and the message.
constexpr char kStepEnd = '\n';
constexpr char kOk = '+';
constexpr char kFailed = '-';

struct Fault {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

// An outcome, behind `head`.
std::string encode_payload(std::string_view payload, std::string_view head = {}) {
  std::string bytes;
  bytes.reserve(head.size() + payload.size() + 1);
  bytes.append(head) += kOk;
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

// The outcome, behind `head`.
std::string run_local(const std::function<std::string()>& local, const std::string& head = {}) {
  try {
    return encode_payload(local(), head);
  } catch (...) {
    return head + encode_fault(current_fault());
  }
}

// Every rank's part of a round. On the coordinator all messages, elsewhere nothing.
std::vector<std::string> gather_outcomes(Exchange& exchange, std::string_view step,
                                         const std::function<std::string()>& local) {
  HP_DCHECK(step.find(kStepEnd) == std::string_view::npos);
  std::vector<std::string> messages = exchange.gather(run_local(local, std::string(step) + kStepEnd));
  HP_CHECK(!exchange.is_coordinator() || static_cast<int64_t>(messages.size()) == exchange.size(), kInternal,
           "the exchange gathered ", messages.size(), " messages of ", exchange.size(), " ranks");
  return messages;
}

// What the sender is doing. Others than ranks in a round may use an exchange too.
std::string_view step_of(std::string_view message) {
  const size_t end = message.find(kStepEnd);
  return end == std::string_view::npos ? "doing something else" : message.substr(0, end);
}

// What all ranks are told if they are not in the same step.
std::optional<Fault> step_fault(const std::vector<std::string>& messages) {
  const std::string_view step = step_of(messages.at(0));
  for (size_t rank = 1; rank < messages.size(); ++rank) {
    if (step_of(messages[rank]) == step) continue;
    return Fault{ErrorCode::kFailedPrecondition,
                 str_cat("rank ", rank, " is ", step_of(messages[rank]), " while rank 0 is ", step,
                         "; every rank must make the same calls in the same order")};
  }
  return std::nullopt;
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
  if (const auto fault = step_fault(messages)) return same_for_all(size, encode_fault(*fault));
  for (std::string& message : messages) message.erase(0, step.size() + 1);
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

// NOLINTNEXTLINE(performance-unnecessary-value-param): others send it from where it lies.
std::string Exchange::broadcast(std::string message) {
  if (!is_coordinator()) return scatter({});
  return scatter(same_for_all(static_cast<size_t>(size()), message));
}

std::string run_round(Exchange& exchange, std::string_view step, const std::function<std::string()>& local,
                      const Coordinate& coordinate) {
  std::vector<std::string> messages = gather_outcomes(exchange, step, local);
  std::vector<std::string> answers;
  if (exchange.is_coordinator()) answers = answers_to(step, std::move(messages), coordinate);
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

std::string announce(Exchange& exchange, std::string_view step, const std::function<std::string()>& make) {
  const std::vector<std::string> messages = gather_outcomes(exchange, step, [] { return std::string(); });
  std::string answer;
  if (exchange.is_coordinator()) {
    const auto fault = step_fault(messages);
    answer = fault ? encode_fault(*fault) : run_local(make);
  }
  return payload_of(exchange.broadcast(std::move(answer)));
}

}  // namespace hyper_parallel
