#pragma once

// Runs a function in several real processes that form one Gloo group, for the distributed tests.
//
// Each process is forked from the test program and meets the others through a file in a fresh temporary folder. The
// test program itself must not have started a thread, since a forked child has none of them: whoever calls here runs
// torch only inside `body`. Processes that are still there at the limit are killed, and the run counts as failed.

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace hyper_parallel::test {

struct ProcessOptions {
  /// The group's timeout per operation.
  std::chrono::milliseconds group_timeout = std::chrono::seconds(10);
  /// When the parent kills what still runs.
  std::chrono::milliseconds limit = std::chrono::seconds(30);
};

/// What a process sees.
struct ProcessRank {
  int rank;
  int size;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  /// A fresh folder that all ranks share, removed at the end.
  std::string folder;
};

/// How a process ended.
struct ProcessOutcome {
  /// The exit code: 0 if `body` returned and no gtest expectation failed in it, 128 + the signal if one ended it.
  int exit_code = 0;
  bool killed_at_limit = false;
  /// The text of the exception that left `body`, or what the process wrote as failed expectation; "" for none.
  std::string error;
  /// From the fork to the end.
  std::chrono::milliseconds duration{0};
};

/// Runs `body` in `size` processes and returns their outcomes in rank order. Throws kFailedPrecondition if this
/// process has more than one thread.
std::vector<ProcessOutcome> run_processes_collecting(int size, const std::function<void(const ProcessRank&)>& body,
                                                     const ProcessOptions& options = {});

/// The same, and a gtest failure for each process that did not end well.
void run_processes(int size, const std::function<void(const ProcessRank&)>& body, const ProcessOptions& options = {});

}  // namespace hyper_parallel::test
