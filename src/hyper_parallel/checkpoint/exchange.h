#pragma once

// Exchange: how the ranks of a save or load talk: small messages between all of them and rank 0, the coordinator.
//
// A round is the only protocol: every rank does its part, the coordinator hears of all of them and answers each. A
// fault anywhere becomes the same error on every rank, so that none goes on alone. Ranks that are not in the same step,
// as when one saves while another loads, are such a fault.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hyper_parallel {

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  bool is_coordinator() const { return rank() == 0; }

  /// The messages of all ranks, by rank, on the coordinator; nothing elsewhere.
  virtual std::vector<std::string> gather(std::string message) = 0;
  /// Message i goes to rank i; only the coordinator's argument counts.
  virtual std::string scatter(std::vector<std::string> messages) = 0;
  /// The coordinator's message on every rank; the others' argument does not count. By `scatter` unless overridden.
  virtual std::string broadcast(std::string message);
};

/// A job of one rank.
class SingleExchange final : public Exchange {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::vector<std::string> gather(std::string message) override { return {std::move(message)}; }
  std::string scatter(std::vector<std::string> messages) override { return std::move(messages.at(0)); }
  std::string broadcast(std::string message) override { return message; }
};

/// What the coordinator makes of all ranks' messages: an answer for each.
using Coordinate = std::function<std::vector<std::string>(std::vector<std::string> messages)>;

/// Runs `local` on every rank, then `coordinate` on the coordinator, and returns this rank's answer.
///
/// If `local` throws somewhere, `coordinate` does not run and every rank throws the same error: the code of the lowest
/// failing rank, and "<step> failed on rank 1: <its message>" with the number of further ranks that failed. If
/// `coordinate` throws, every rank throws its error as it is. Exceptions of the library and std::exception
/// (as kInternal; std::bad_alloc as kFailedPrecondition) are carried over. What the exchange itself throws, as when a
/// peer has died, is thrown on as it is.
///
/// `step` says what a rank is doing ("planning the save"), on one line. If it is not the same on all ranks, every rank
/// throws kFailedPrecondition, and neither `coordinate` nor `local`'s errors count.
std::string run_round(Exchange& exchange, std::string_view step, const std::function<std::string()>& local,
                      const Coordinate& coordinate);

/// Every rank does `local`; all throw if one does.
void agree(Exchange& exchange, std::string_view step, const std::function<void()>& local);

/// What `make` gives on the coordinator, where alone it runs, on every rank; if it throws, every rank throws its error
/// as it is. A round like any other: it begins when all ranks have come, and `step` must be the same on all.
std::string announce(Exchange& exchange, std::string_view step, const std::function<std::string()>& make);

}  // namespace hyper_parallel
