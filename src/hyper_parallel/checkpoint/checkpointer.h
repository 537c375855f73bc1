#pragma once

// Checkpointer: the saves and loads of one job, one after the other, in the foreground or behind it.
//
// All of them talk over one exchange, so at most one is under way: whoever comes while a save runs in the background
// waits for its end first. A background save has planned, has checked everything that can be known before writing, and
// has copied its bytes before `async_save` returns; its thread writes and publishes.

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "hyper_parallel/checkpoint/exchange.h"
#include "hyper_parallel/checkpoint/load.h"
#include "hyper_parallel/checkpoint/planner.h"
#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/checkpoint/save.h"
#include "hyper_parallel/checkpoint/snapshot.h"
#include "hyper_parallel/checkpoint/storage.h"

namespace hyper_parallel {

/// A save in the background. The last one to let go of it waits for its end, unless that is the save's own thread or
/// another process, forked from this one.
class AsyncSave {
 public:
  ~AsyncSave();
  AsyncSave(const AsyncSave&) = delete;
  AsyncSave& operator=(const AsyncSave&) = delete;

  /// Whether it has ended, well or not.
  bool done() const;
  /// Waits for the end, then throws the error that the save ended with, the same on every rank; again on each call.
  /// Throws kFailedPrecondition in the save's own thread, which would wait for itself, and in a forked process.
  void wait();
  /// Waits at most so long, throws nothing; whether it has ended.
  bool wait_for(std::chrono::milliseconds time) const;

 private:
  friend class Checkpointer;
  AsyncSave();
  struct State;
  std::shared_ptr<State> state_;  // the thread's too
};

class Checkpointer {
 public:
  enum class Replicas { kTrusted, kCompared };

  /// Its functions throw kFailedPrecondition when they are called from within one another, by a planner, a storage or a
  /// progress of theirs: they would wait for themselves.
  explicit Checkpointer(std::shared_ptr<Exchange> exchange);
  /// Waits for the save under way.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// `replicas` says whether `check_replicas` comes first.
  void save(SavePlanner& planner, StorageWriter& writer, Progress& progress, Replicas replicas = Replicas::kTrusted);

  /// Returns when the snapshot is taken, or, where the system has no thread to give, when the save has ended; `planner`
  /// is not used after that. Throws, on every rank, whatever `prepare_save` does; what goes wrong later is thrown by
  /// `AsyncSave::wait`.
  std::shared_ptr<AsyncSave> async_save(SavePlanner& planner, std::shared_ptr<StorageWriter> writer,
                                        std::shared_ptr<Progress> progress, Replicas replicas = Replicas::kTrusted);

  CheckpointMetadata load(LoadPlanner& planner, StorageReader& reader, const LoadRequest& request, Progress& progress);

  Exchange& exchange() const { return *exchange_; }
  const SavePlanCache& plan_cache() const { return cache_; }

 private:
  class Turn;

  void wait_for_turn();
  PreparedSave prepare(SavePlanner& planner, StorageWriter& writer, Replicas replicas);

  std::mutex turn_;
  std::shared_ptr<Exchange> exchange_;
  SavePlanCache cache_;
  SnapshotMemory memory_;
  std::shared_ptr<AsyncSave> under_way_;
};

}  // namespace hyper_parallel
