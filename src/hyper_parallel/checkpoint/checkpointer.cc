#include "hyper_parallel/checkpoint/checkpointer.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/replica_check.h"

namespace hyper_parallel {
namespace {

// Longer waits end here: the clock must not overflow.
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

/// Stands for a snapshot that could not be taken on this rank. Its error comes up where the bytes are asked for, so
/// that the other ranks, which wait for this one's share, hear of it.
class FailedSnapshot final : public SavePlanner {
 public:
  // NOLINTNEXTLINE(bugprone-throw-keyword-missing): it is thrown later.
  explicit FailedSnapshot(std::exception_ptr error) : error_(std::move(error)) {}
  SavePlan build_local_plan() override { std::rethrow_exception(error_); }
  HeldBytes get_data(const WriteItem&) override { std::rethrow_exception(error_); }

 private:
  std::exception_ptr error_;
};

/// Marks the calling thread as one that saves or loads over an exchange: whoever is called from there and comes for the
/// same exchange again would wait for itself.
class Busy {
 public:
  explicit Busy(const Exchange* exchange) {
    HP_CHECK(std::ranges::find(exchanges(), exchange) == exchanges().end(), kFailedPrecondition,
             "a save or load was called from within another of the same ranks (from its planner, storage or progress)");
    exchanges().push_back(exchange);
  }
  ~Busy() { exchanges().pop_back(); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  static std::vector<const Exchange*>& exchanges() {
    thread_local std::vector<const Exchange*> of_this_thread;
    return of_this_thread;
  }
};

}  // namespace

struct AsyncSave::State {
  PreparedSave prepared;
  std::unique_ptr<SavePlanner> snapshot;
  std::shared_ptr<Exchange> exchange;
  std::shared_ptr<StorageWriter> writer;
  std::shared_ptr<Progress> progress;

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  bool ended = false;
  std::exception_ptr error;
  std::thread thread;
  const pid_t process = ::getpid();  // a process forked from it has the state and not the thread

  bool is_of_this_process() const { return process == ::getpid(); }
  bool is_own_thread() const { return thread.get_id() == std::this_thread::get_id(); }

  void check_may_wait() const {
    HP_CHECK(is_of_this_process(), kFailedPrecondition,
             "the checkpoint is saved by the process that this one was forked from");
    HP_CHECK(!is_own_thread(), kFailedPrecondition,
             "called from within the save that it would wait for (from its storage or progress)");
  }

  void run() {
    const Busy busy(exchange.get());
    run_here();
  }

  void run_here() {
    std::exception_ptr thrown;
    try {
      complete_save(*exchange, prepared, *snapshot, *writer, *progress);
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    error = thrown;
    ended = true;
    changed.notify_all();
  }
};

AsyncSave::AsyncSave() : state_(std::make_shared<State>()) {}

AsyncSave::~AsyncSave() {
  // In a forked process there is no thread to join, and none to destroy: what is left of it stays.
  if (!state_->is_of_this_process()) {
    new std::shared_ptr<State>(state_);  // NOLINT(bugprone-unhandled-exception-at-new): nothing is left to do then
  } else if (state_->is_own_thread()) {
    state_->thread.detach();  // it keeps the state until it ends
  } else if (state_->thread.joinable()) {
    state_->thread.join();
  }
}

bool AsyncSave::done() const { return wait_for(std::chrono::milliseconds(0)); }

bool AsyncSave::wait_for(std::chrono::milliseconds time) const {
  if (time.count() > 0) state_->check_may_wait();
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::min(time, kLongestWait), [this] { return state_->ended; });
}

void AsyncSave::wait() {
  state_->check_may_wait();
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->ended; });
  if (state_->error) std::rethrow_exception(state_->error);
}

Checkpointer::Checkpointer(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

// NOLINTNEXTLINE(bugprone-exception-escape): whoever may not wait was asked, and a mutex of ours fails never.
Checkpointer::~Checkpointer() {
  if (under_way_ != nullptr && under_way_->state_->is_of_this_process() && !under_way_->state_->is_own_thread()) {
    wait_for_turn();
  }
}

/// Holds the checkpointer for one save or load.
class Checkpointer::Turn {
 public:
  explicit Turn(Checkpointer& checkpointer) : busy_(checkpointer.exchange_.get()), lock_(checkpointer.turn_) {}

 private:
  Busy busy_;  // before the lock, which the save that this thread is in may hold
  std::lock_guard<std::mutex> lock_;
};

void Checkpointer::wait_for_turn() {
  if (under_way_ == nullptr) return;
  under_way_->state_->check_may_wait();
  std::unique_lock lock(under_way_->state_->mutex);
  under_way_->state_->changed.wait(lock, [this] { return under_way_->state_->ended; });
  lock.unlock();
  under_way_ = nullptr;
}

PreparedSave Checkpointer::prepare(SavePlanner& planner, StorageWriter& writer, Replicas replicas) {
  wait_for_turn();
  if (replicas == Replicas::kCompared) check_replicas(*exchange_, planner);
  return prepare_save(*exchange_, planner, writer, &cache_);
}

void Checkpointer::save(SavePlanner& planner, StorageWriter& writer, Progress& progress, Replicas replicas) {
  const Turn turn(*this);
  const PreparedSave prepared = prepare(planner, writer, replicas);
  complete_save(*exchange_, prepared, planner, writer, progress);
}

std::shared_ptr<AsyncSave> Checkpointer::async_save(SavePlanner& planner, std::shared_ptr<StorageWriter> writer,
                                                    std::shared_ptr<Progress> progress, Replicas replicas) {
  const Turn turn(*this);
  const std::shared_ptr<AsyncSave> save(new AsyncSave());
  AsyncSave::State& state = *save->state_;
  state.prepared = prepare(planner, *writer, replicas);
  state.exchange = exchange_;
  state.writer = std::move(writer);
  state.progress = std::move(progress);
  // A snapshot that fails on this rank must not leave the others waiting: the background part reports it.
  try {
    state.snapshot = take_snapshot(state.prepared.assigned, planner, memory_);
  } catch (...) {
    state.snapshot = std::make_unique<FailedSnapshot>(std::current_exception());
  }
  under_way_ = save;
  // The others count on this rank's share, so without a thread it is written here.
  try {
    state.thread = std::thread([kept = save->state_] { kept->run(); });
  } catch (const std::exception&) {
    state.run_here();
  }
  return save;
}

CheckpointMetadata Checkpointer::load(LoadPlanner& planner, StorageReader& reader, const LoadRequest& request,
                                      Progress& progress) {
  const Turn turn(*this);
  wait_for_turn();
  return load_checkpoint(*exchange_, planner, reader, request, progress);
}

}  // namespace hyper_parallel
