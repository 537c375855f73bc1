#pragma once

// A job whose ranks are threads of this process: an Exchange for each, with a time limit, so that a rank that never
// comes fails a test instead of hanging it.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/exchange.h"

namespace hyper_parallel {

class ThreadJob {
 public:
  explicit ThreadJob(int64_t size, std::chrono::milliseconds limit = std::chrono::seconds(10))
      : limit_(limit), to_coordinator_(static_cast<size_t>(size)), from_coordinator_(static_cast<size_t>(size)) {}

  int64_t size() const { return static_cast<int64_t>(to_coordinator_.size()); }

  /// The exchange of one rank, for the thread that is this rank.
  class Rank final : public Exchange {
   public:
    Rank(ThreadJob& job, int64_t rank) : job_(job), rank_(static_cast<size_t>(rank)) {}

    int64_t rank() const override { return static_cast<int64_t>(rank_); }
    int64_t size() const override { return job_.size(); }

    std::vector<std::string> gather(std::string message) override {
      job_.put(job_.to_coordinator_[rank_], std::move(message));
      std::vector<std::string> messages;
      if (!is_coordinator()) return messages;
      for (size_t rank = 0; rank < job_.to_coordinator_.size(); ++rank) {
        messages.push_back(job_.take(job_.to_coordinator_[rank], rank));
      }
      return messages;
    }

    std::string scatter(std::vector<std::string> messages) override {
      if (is_coordinator()) {
        for (size_t rank = 0; rank < messages.size(); ++rank) {
          job_.put(job_.from_coordinator_.at(rank), std::move(messages[rank]));
        }
      }
      return job_.take(job_.from_coordinator_[rank_], 0);
    }

   private:
    ThreadJob& job_;
    size_t rank_;
  };

 private:
  using Mailbox = std::deque<std::string>;

  void put(Mailbox& box, std::string message) {
    const std::scoped_lock lock(mutex_);
    box.push_back(std::move(message));
    changed_.notify_all();
  }

  std::string take(Mailbox& box, size_t sender) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, limit_, [&] { return !box.empty(); });
    HP_CHECK(came, kFailedPrecondition, "rank ", sender, " did not come within ", limit_.count(), " ms");
    std::string message = std::move(box.front());
    box.pop_front();
    return message;
  }

  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Mailbox> to_coordinator_;
  std::vector<Mailbox> from_coordinator_;
};

/// Runs `rank_main` on every rank of the job, each a thread. By rank: "InvalidArgument: <message>" of the Error that it
/// threw, "" if it returned.
inline std::vector<std::string> errors_of_ranks(ThreadJob& job, const std::function<void(Exchange&)>& rank_main) {
  std::vector<std::string> errors(static_cast<size_t>(job.size()));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < job.size(); ++rank) {
    threads.emplace_back([&, rank] {
      ThreadJob::Rank exchange(job, rank);
      try {
        rank_main(exchange);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = str_cat(to_string(error.code()), ": ", error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::vector<std::string> errors_of_ranks(int64_t size, const std::function<void(Exchange&)>& rank_main) {
  ThreadJob job(size);
  return errors_of_ranks(job, rank_main);
}

/// Runs `rank_main` on every rank; throws the first error that is not empty.
inline void run_ranks(int64_t size, const std::function<void(Exchange&)>& rank_main) {
  for (const std::string& error : errors_of_ranks(size, rank_main)) {
    if (!error.empty()) throw Error(ErrorCode::kInternal, error);
  }
}

}  // namespace hyper_parallel
