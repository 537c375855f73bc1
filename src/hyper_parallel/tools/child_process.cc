#include "hyper_parallel/tools/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"

namespace hyper_parallel {
namespace {

/// Leaves the terminal's interrupts to a child, so that this process can clean up after it.
class InterruptsIgnored {
 public:
  InterruptsIgnored() {
    struct sigaction ignore{};
    ignore.sa_handler = SIG_IGN;
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &ignore, &before_[i]);
  }
  ~InterruptsIgnored() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  InterruptsIgnored(const InterruptsIgnored&) = delete;
  InterruptsIgnored& operator=(const InterruptsIgnored&) = delete;

  /// Those that were not ignored before, and are not to be in the child.
  sigset_t heeded_before() const {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (size_t i = 0; i < kSignals.size(); ++i) {
      if (before_[i].sa_handler != SIG_IGN) ::sigaddset(&signals, kSignals[i]);
    }
    return signals;
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGQUIT};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// What posix_spawn(3) is to do to the child before the program starts.
class SpawnSettings {
 public:
  explicit SpawnSettings(const sigset_t& signals) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

int wait_for(pid_t child, const std::string& program) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    const int error = errno;
    HP_CHECK(error == EINTR, kFailedPrecondition, "cannot wait for ", quoted_path(program), ": ", errno_text(error));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  const InterruptsIgnored interrupts;
  const SpawnSettings settings(interrupts.heeded_before());
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, pointers.front(), settings.actions(), settings.attributes(), pointers.data(), ::environ);
  HP_CHECK(error == 0, kFailedPrecondition, "cannot run ", quoted_path(arguments.front()), ": ", errno_text(error));
  return wait_for(child, arguments.front());
}

}  // namespace hyper_parallel
