#include "tests/distributed/process_pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/gloo_group.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kThrewExitCode = 97;
constexpr int kExpectationExitCode = 98;

struct Child {
  pid_t pid = -1;
  Clock::time_point started;
  bool running = true;
  ProcessOutcome outcome;
};

std::string error_path(const std::string& folder, int rank) { return str_cat(folder, "/error.", rank); }

void write_error(const std::string& folder, int rank, const std::string& text) {
  std::ofstream(error_path(folder, rank)) << text;
}

/// A forked child has only the thread that forked: locks and pools of other threads would be dead in it.
void check_single_thread() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  const auto threads = std::distance(begin(tasks), end(tasks));
  HP_CHECK(threads == 1, kFailedPrecondition, "run_processes: this process has ", threads,
           " threads but must have one, so that it can be forked; run torch only inside the body");
}

/// The failed expectations of the current test, which the parent cannot see in the child's memory.
std::string failed_expectations() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  if (info == nullptr) return "";
  std::string text;
  for (int i = 0; i < info->result()->total_part_count(); ++i) {
    const auto& part = info->result()->GetTestPartResult(i);
    if (part.failed()) text += str_cat("expectation at line ", part.line_number(), ": ", part.summary(), "\n");
  }
  return text;
}

int run_body(const std::function<void(const ProcessRank&)>& body, int rank, int size, const std::string& folder,
             const ProcessOptions& options) {
  try {
    ProcessRank self{rank, size, nullptr, folder};
    self.group = create_gloo_group(create_file_store(folder + "/rendezvous", size), rank, size,
                                   {.timeout = options.group_timeout});
    // A member is made once it is connected itself; a body that ends at once must not cut off one that is not yet.
    self.group->barrier()->wait();
    body(self);
  } catch (const std::exception& error) {
    write_error(folder, rank, error.what());
    return kThrewExitCode;
  }
  const std::string failures = failed_expectations();
  write_error(folder, rank, failures);
  return failures.empty() ? 0 : kExpectationExitCode;
}

Child start_child(const std::function<void(const ProcessRank&)>& body, int rank, int size, const std::string& folder,
                  const ProcessOptions& options) {
  Child child;
  child.started = Clock::now();
  std::fflush(nullptr);
  child.pid = fork();
  HP_CHECK(child.pid >= 0, kFailedPrecondition, "cannot fork rank ", rank);
  if (child.pid == 0) {
    const int code = run_body(body, rank, size, folder, options);
    std::fflush(nullptr);
    // Not exit(): the test program's own destructors belong to the parent.
    _exit(code);
  }
  return child;
}

void reap(Child& child, int status) {
  child.running = false;
  child.outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  child.outcome.duration = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - child.started);
}

/// Collects the children that have ended; true while some still run.
bool poll_children(std::vector<Child>& children) {
  bool any_running = false;
  for (Child& child : children) {
    int status = 0;
    if (child.running && waitpid(child.pid, &status, WNOHANG) == child.pid) reap(child, status);
    any_running = any_running || child.running;
  }
  return any_running;
}

void kill_children(std::vector<Child>& children) {
  for (Child& child : children) {
    if (!child.running) continue;
    kill(child.pid, SIGKILL);
    int status = 0;
    waitpid(child.pid, &status, 0);
    reap(child, status);
    child.outcome.killed_at_limit = true;
  }
}

void read_error(const std::string& folder, int rank, ProcessOutcome& outcome) {
  std::ifstream file(error_path(folder, rank));
  outcome.error.assign(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

std::vector<ProcessOutcome> run_processes_collecting(int size, const std::function<void(const ProcessRank&)>& body,
                                                     const ProcessOptions& options) {
  check_single_thread();
  const TemporaryFolder folder;
  std::vector<Child> children;
  const auto deadline = Clock::now() + options.limit;
  for (int rank = 0; rank < size; ++rank)
    children.push_back(start_child(body, rank, size, folder.path().string(), options));
  while (poll_children(children) && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  kill_children(children);
  std::vector<ProcessOutcome> outcomes;
  for (int rank = 0; rank < size; ++rank) {
    outcomes.push_back(children[static_cast<size_t>(rank)].outcome);
    read_error(folder.path().string(), rank, outcomes.back());
  }
  return outcomes;
}

void run_processes(int size, const std::function<void(const ProcessRank&)>& body, const ProcessOptions& options) {
  const auto outcomes = run_processes_collecting(size, body, options);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const ProcessOutcome& outcome = outcomes[rank];
    EXPECT_FALSE(outcome.killed_at_limit)
        << "rank " << rank << " still ran at the limit of " << options.limit.count() << " ms";
    EXPECT_EQ(outcome.exit_code, 0) << "rank " << rank << ": " << outcome.error;
  }
}

}  // namespace hyper_parallel::test
