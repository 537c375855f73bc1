#include "examples/reshard_model/rank_processes.h"

#include <c10/util/Exception.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel::examples {
namespace {

/// Prints one line, in one piece so that ranks do not mix theirs. The exit code of a failed rank.
int report(int rank, std::string_view message) {
  std::string line(message.substr(0, message.find('\n')));
  std::cerr << str_cat("reshard_model: rank ", rank, ": ", line, "\n") << std::flush;
  return 1;
}

[[noreturn]] void run_child(pid_t parent, const ProcessContext& process,
                            const std::function<void(const ProcessContext&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);   // no rank outlives the program that started it
  if (getppid() != parent) _exit(1);  // .. which may have ended before that line
  int code = 0;
  try {
    body(process);
    std::cout.flush();
    HP_CHECK(std::cout.good(), kFailedPrecondition, "cannot write the output");
  } catch (const c10::Error& error) {
    code = report(process.rank, error.what_without_backtrace());
  } catch (const std::exception& error) {
    code = report(process.rank, error.what());
  }
  // Exit without the parent's destructors: its objects are not this process's to destroy.
  _exit(code);
}

/// SIGINT, SIGTERM and the end of a child come one at a time through `next`, so that the temporary folder always goes.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&ours_);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&ours_, number);
    sigprocmask(SIG_BLOCK, &ours_, &before_);
    signal(SIGCHLD, SIG_DFL);  // an inherited SIG_IGN would hide how children end
  }
  ~BlockedSignals() { restore(); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  /// Waits for one of them; the number of the signal.
  int next() const {
    int number = 0;
    sigwait(&ours_, &number);
    return number;
  }

 private:
  sigset_t ours_{};
  sigset_t before_{};
};

void end_all(const std::map<pid_t, int>& running) {
  for (const auto& [pid, rank] : running) kill(pid, SIGKILL);
}

/// Takes note of every child that has ended; false if one did not end well. The first of these ends the others.
bool reap(std::map<pid_t, int>& running, bool were_all_well) {
  bool all_well = were_all_well;
  int status = 0;
  for (pid_t pid = 0; !running.empty() && (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const int rank = running.at(pid);
    running.erase(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    all_well = false;
    // Once one has failed, signals are this program's own.
    if (WIFSIGNALED(status) && were_all_well) {
      report(rank, str_cat("ended by signal ", WTERMSIG(status), ", ", strsignal(WTERMSIG(status))));
    }
  }
  if (were_all_well && !all_well) end_all(running);
  return all_well;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  HP_CHECK(!error, kFailedPrecondition, "TMPDIR is no folder for temporary files: ", error.message());
  std::string pattern = (parent / "reshard_model.XXXXXX").string();
  HP_CHECK(mkdtemp(pattern.data()) != nullptr, kFailedPrecondition, "cannot make a temporary folder ", pattern, ": ",
           std::strerror(errno));
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

int run_processes(int size, const std::function<void(const ProcessContext&)>& body) {
  const TemporaryFolder folder;
  const BlockedSignals signals;
  std::cout.flush();
  const pid_t parent = getpid();
  std::map<pid_t, int> running;  // process -> rank
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    HP_CHECK(pid >= 0, kFailedPrecondition, "cannot start the process of rank ", rank, ": ", std::strerror(errno));
    if (pid == 0) {
      signals.restore();
      run_child(parent, {rank, size, folder.path()}, body);
    }
    running.emplace(pid, rank);
  }
  bool all_well = true;
  while (!running.empty()) {
    const int signal = signals.next();
    if (signal != SIGCHLD) {
      end_all(running);
      return 128 + signal;
    }
    all_well = reap(running, all_well);
  }
  return all_well ? 0 : 1;
}

}  // namespace hyper_parallel::examples
