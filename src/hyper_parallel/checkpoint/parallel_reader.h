#pragma once

// Reads chunks on several threads: those of the reader move and verify bytes, and so does the caller's while it would
// have to wait. Owners of targets are let go, and the progress is told, on the caller's thread alone.
//
// Chunks are handed out in jobs of a few MiB, so small ones cost no thread anything; a few jobs are under way at once.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hyper_parallel/checkpoint/chunk_reader.h"
#include "hyper_parallel/checkpoint/progress.h"

namespace hyper_parallel {

/// One chunk, where its bytes go, and who keeps these places.
struct ChunkRead {
  ChunkSource source;
  std::vector<Delivery> deliveries;
  std::vector<std::shared_ptr<void>> owners;
  int64_t bytes = 0;  // that are delivered
};

class ParallelReader {
 public:
  /// `threads` >= 1 counts the caller's. Others are started as there is work for them; where the system gives none,
  /// there are fewer.
  ParallelReader(int threads, Progress& progress);
  /// Waits for the jobs that are running and drops the others.
  ~ParallelReader();
  ParallelReader(const ParallelReader&) = delete;
  ParallelReader& operator=(const ParallelReader&) = delete;

  /// Reads it by and by. Throws what a job or the progress has thrown.
  void add(ChunkRead chunk);
  /// Waits until all is read. Throws what a job or the progress has thrown: of several faults the first that came.
  void finish();

 private:
  using Job = std::vector<ChunkRead>;

  void hand_out();
  void start_thread();
  void work();
  void run_next(std::unique_lock<std::mutex>& lock, std::vector<std::byte>& buffer, Progress& delivered);
  void run_here(std::unique_lock<std::mutex>& lock);
  void fail(std::exception_ptr fault);
  void collect(std::unique_lock<std::mutex>& lock);

  const size_t threads_wanted_;
  Progress& progress_;
  Job batch_;  // not handed out yet
  int64_t batch_bytes_ = 0;
  std::vector<std::byte> buffer_;       // of the caller
  std::atomic<int64_t> delivered_ = 0;  // bytes that the progress has not heard of

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::vector<Job> done_;  // until the caller lets their owners go
  size_t running_ = 0;
  bool ended_ = false;
  std::exception_ptr fault_;
  std::vector<std::thread> threads_;
};

}  // namespace hyper_parallel
