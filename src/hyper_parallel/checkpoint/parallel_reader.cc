#include "hyper_parallel/checkpoint/parallel_reader.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <system_error>
#include <utility>

namespace hyper_parallel {
namespace {

constexpr int64_t kJobBytes = 4 * kBlockBytes;
constexpr size_t kJobsPerThread = 2;  // running and waiting: nobody runs dry, and few targets are held
constexpr std::chrono::milliseconds kProgressInterval{50};

// Adds up what other threads deliver, for the caller's to tell.
class Deposit final : public Progress {
 public:
  explicit Deposit(std::atomic<int64_t>& bytes) : bytes_(bytes) {}
  void start(int64_t) override {}
  void advance(int64_t bytes) override { bytes_ += bytes; }
  void finish() override {}

 private:
  std::atomic<int64_t>& bytes_;
};

// Tells what the caller's thread delivers, and what the others did.
class Withdrawal final : public Progress {
 public:
  Withdrawal(Progress& progress, std::atomic<int64_t>& bytes) : progress_(progress), bytes_(bytes) {}
  void start(int64_t) override {}
  void advance(int64_t bytes) override { progress_.advance(bytes + bytes_.exchange(0)); }
  void finish() override {}

 private:
  Progress& progress_;
  std::atomic<int64_t>& bytes_;
};

}  // namespace

ParallelReader::ParallelReader(int threads, Progress& progress)
    : threads_wanted_(static_cast<size_t>(threads) - 1), progress_(progress) {}

ParallelReader::~ParallelReader() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ParallelReader::add(ChunkRead chunk) {
  batch_bytes_ += chunk.bytes;
  batch_.push_back(std::move(chunk));
  if (batch_bytes_ < kJobBytes) return;
  hand_out();
  std::unique_lock lock(mutex_);
  start_thread();
  while (waiting_.size() + running_ > kJobsPerThread * threads_.size()) run_here(lock);
  collect(lock);
}

void ParallelReader::finish() {
  hand_out();
  std::unique_lock lock(mutex_);
  while (!waiting_.empty()) run_here(lock);
  while (running_ > 0) {
    changed_.wait_for(lock, kProgressInterval);
    collect(lock);
  }
  collect(lock);
}

void ParallelReader::hand_out() {
  if (batch_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::exchange(batch_, {}));
  }
  batch_bytes_ = 0;
  changed_.notify_one();
}

// One more if all are busy. With the lock.
void ParallelReader::start_thread() {
  if (threads_.size() >= threads_wanted_ || running_ + waiting_.size() <= threads_.size()) return;
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // There are as many as there are.
  }
}

void ParallelReader::work() {
  std::vector<std::byte> buffer;
  Deposit deposit(delivered_);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
    if (ended_) return;
    run_next(lock, buffer, deposit);
  }
}

void ParallelReader::run_here(std::unique_lock<std::mutex>& lock) {
  Withdrawal withdrawal(progress_, delivered_);
  run_next(lock, buffer_, withdrawal);
}

// With the lock, which it lets go while it reads. Something must wait.
void ParallelReader::run_next(std::unique_lock<std::mutex>& lock, std::vector<std::byte>& buffer, Progress& delivered) {
  Job job = std::move(waiting_.front());
  waiting_.pop_front();
  ++running_;
  lock.unlock();
  std::exception_ptr fault;
  try {
    buffer.resize(static_cast<size_t>(kBlockBytes));
    for (ChunkRead& chunk : job) read_chunk(chunk.source, std::move(chunk.deliveries), buffer, delivered);
  } catch (...) {
    fault = std::current_exception();
  }
  lock.lock();
  --running_;
  done_.push_back(std::move(job));
  if (fault != nullptr) fail(fault);
  changed_.notify_all();
}

// With the lock. What waits is left to the caller's thread to let go.
void ParallelReader::fail(std::exception_ptr fault) {
  if (fault_ == nullptr) fault_ = std::move(fault);
  std::ranges::move(waiting_, std::back_inserter(done_));
  waiting_.clear();
}

// With the lock, which it lets go meanwhile: lets go of what is done, tells the progress, throws a fault.
void ParallelReader::collect(std::unique_lock<std::mutex>& lock) {
  const std::exception_ptr fault = fault_;
  std::vector<Job> done = std::exchange(done_, {});
  lock.unlock();
  done.clear();
  if (fault != nullptr) std::rethrow_exception(fault);
  if (const int64_t bytes = delivered_.exchange(0); bytes > 0) progress_.advance(bytes);
  lock.lock();
}

}  // namespace hyper_parallel
