#include "tests/faults/faulty_run.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <stdexcept>

namespace hyper_parallel {
namespace {

constexpr int kSaverLimitMs = 60'000;

// In the child: becomes the saver, its output in `output`.
[[noreturn]] void become_saver(int output, const std::filesystem::path& directory, int64_t generation,
                               const Fault& fault, std::chrono::milliseconds limit) {
  ::setpgid(0, 0);
  ::dup2(output, STDOUT_FILENO);
  // A sanitizer's runtime wants to be the first library; behind the shim it works too.
  const char* asan = ::getenv("ASAN_OPTIONS");
  ::setenv("ASAN_OPTIONS", (std::string(asan == nullptr ? "" : asan) + ":verify_asan_link_order=0").c_str(), 1);
  ::setenv("LD_PRELOAD", HP_FAULT_SHIM, 1);
  ::setenv("HP_FAULT_RANK", std::to_string(fault.rank).c_str(), 1);
  ::setenv("HP_FAULT_CALL", std::to_string(fault.call).c_str(), 1);
  ::setenv("HP_FAULT_ACTION", fault.action.c_str(), 1);
  ::execl(HP_FAULT_SAVER, HP_FAULT_SAVER, directory.c_str(), std::to_string(generation).c_str(),
          std::to_string(limit.count()).c_str(), nullptr);
  ::_exit(127);
}

// All that comes until the other end closes. Kills the saver and its ranks if that takes too long.
std::string read_output(int input, pid_t saver) {
  std::string text;
  char buffer[4096];
  while (true) {
    pollfd waiting{input, POLLIN, 0};
    if (::poll(&waiting, 1, kSaverLimitMs) == 0) {
      ::kill(-saver, SIGKILL);
      ::waitpid(saver, nullptr, 0);
      throw std::runtime_error("the saver hangs");
    }
    const ssize_t count = ::read(input, buffer, sizeof buffer);
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

RankEnd parse_end(std::istream& lines) {
  RankEnd end;
  std::string count;
  std::getline(lines, end.how);
  std::getline(lines, count);
  if (count.empty()) throw std::runtime_error("the saver gave no account of a rank: '" + end.how + "'");
  for (int left = std::stoi(count); left > 0; --left) std::getline(lines, end.calls.emplace_back());
  return end;
}

}  // namespace

std::array<RankEnd, 2> run_saver(const std::filesystem::path& directory, int64_t generation, const Fault& fault,
                                 std::chrono::milliseconds limit) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("cannot make a pipe");
  const pid_t saver = ::fork();
  if (saver == 0) {
    ::close(ends[0]);
    become_saver(ends[1], directory, generation, fault, limit);
  }
  ::close(ends[1]);
  std::istringstream lines(read_output(ends[0], saver));
  ::close(ends[0]);
  ::waitpid(saver, nullptr, 0);
  return {parse_end(lines), parse_end(lines)};
}

}  // namespace hyper_parallel
