#include "benchmarks/bench_collectives/rank_processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <system_error>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel::benchmarks {
namespace {

[[noreturn]] void run_child(int rank, const std::filesystem::path& store, const RankProcesses::Body& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives the program that started it
  int code = 0;
  try {
    body(rank, store);
  } catch (const std::exception& error) {
    std::cerr << "bench_collectives: rank " << rank << ": " << error.what() << std::endl;
    code = 1;
  }
  // Exit without the parent's destructors: its objects are not this process's to destroy.
  _exit(code);
}

}  // namespace

RankProcesses::RankProcesses() {
  std::string pattern = (std::filesystem::temp_directory_path() / "bench_collectives.XXXXXX").string();
  HP_CHECK(mkdtemp(pattern.data()) != nullptr, kFailedPrecondition, "cannot make a temporary folder ", pattern);
  folder_ = pattern;
}

RankProcesses::~RankProcesses() {
  for (const pid_t pid : running_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RankProcesses::run(int size, const Body& body) {
  const std::filesystem::path store = folder_ / "rendezvous";
  for (int rank = 1; rank < size; ++rank) {
    const pid_t pid = fork();
    HP_CHECK(pid >= 0, kFailedPrecondition, "cannot start the process of rank ", rank);
    if (pid == 0) run_child(rank, store, body);
    running_.push_back(pid);
  }
  body(0, store);
  bool all_well = true;
  for (; !running_.empty(); running_.pop_back()) {
    int status = 0;
    all_well = waitpid(running_.back(), &status, 0) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && all_well;
  }
  HP_CHECK(all_well, kFailedPrecondition, "a rank failed");
}

}  // namespace hyper_parallel::benchmarks
