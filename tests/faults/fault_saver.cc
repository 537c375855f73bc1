// fault_saver DIRECTORY GENERATION LIMIT_MS
//
// Saves a generation from two ranks, each a process, and says how they ended: for each rank the line "ok", "killed" or
// "raised <error>", the number of lines that follow, and the names of the counted calls. The rank HP_FAULT_RANK is put
// under fault_shim.cc, which must be preloaded.

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>

#include "tests/faults/generation.h"
#include "tests/faults/socket_exchange.h"

namespace hyper_parallel {
namespace {

// What a rank leaves behind, in memory that it shares with its parent.
struct Report {
  std::array<char, 4000> error{};
  std::array<char, 4000> calls{};
};

template <size_t N>
void put(std::array<char, N>& to, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), N - 1), to.begin());
}

template <typename Function>
Function* shim_function(const char* name) {
  auto* function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  HP_CHECK(function != nullptr, kInvalidArgument, "the fault shim is not preloaded: there is no function ", name);
  return function;
}

struct Options {
  std::filesystem::path directory;
  int64_t generation = 0;
  std::chrono::milliseconds limit{0};
};

void run_rank(int64_t rank, int socket, const Options& options, Report& report) {
  const char* chosen = std::getenv("HP_FAULT_RANK");
  const bool watched = chosen != nullptr && std::atoll(chosen) == rank;
  try {
    SocketExchange exchange(rank, socket, options.limit);
    if (watched) shim_function<void(const char*)>("fault_shim_begin")(options.directory.c_str());
    save_generation(exchange, options.directory, options.generation);
  } catch (const std::exception& error) {
    put(report.error, error.what());
  }
  if (watched) put(report.calls, shim_function<const char*()>("fault_shim_end")());
}

pid_t start_rank(int64_t rank, const std::array<int, 2>& sockets, const Options& options, Report& report) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const auto end = static_cast<size_t>(rank);
  ::close(sockets[1 - end]);
  run_rank(rank, sockets[end], options, report);
  ::_exit(0);
}

// Waits until both have ended or stopped; only then a stopped rank is killed, so that the other has met its silence.
std::array<int, 2> await_ranks(const std::array<pid_t, 2>& ranks) {
  std::array<int, 2> statuses{};
  for (size_t rank = 0; rank < 2; ++rank) ::waitpid(ranks[rank], &statuses[rank], WUNTRACED);
  for (size_t rank = 0; rank < 2; ++rank) {
    if (!WIFSTOPPED(statuses[rank])) continue;
    ::kill(ranks[rank], SIGKILL);
    ::waitpid(ranks[rank], &statuses[rank], 0);
  }
  return statuses;
}

void print_end(int status, const Report& report) {
  const std::string error(report.error.data());
  const std::string calls(report.calls.data());
  if (WIFSIGNALED(status)) {
    std::cout << (WTERMSIG(status) == SIGKILL ? "killed" : "crashed") << "\n";
  } else {
    std::cout << (error.empty() ? "ok" : "raised " + error) << "\n";
  }
  std::cout << std::count(calls.begin(), calls.end(), '\n') << "\n" << calls;
}

int run(const Options& options) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) return 2;
  void* memory = ::mmap(nullptr, 2 * sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  auto* reports = new (memory) Report[2];
  std::array<pid_t, 2> ranks{};
  for (size_t rank = 0; rank < 2; ++rank) {
    ranks[rank] = start_rank(static_cast<int64_t>(rank), sockets, options, reports[rank]);
  }
  // The ranks alone hold the ends: one that dies is noticed by the other.
  ::close(sockets[0]);
  ::close(sockets[1]);
  const std::array<int, 2> statuses = await_ranks(ranks);
  for (size_t rank = 0; rank < 2; ++rank) print_end(statuses[rank], reports[rank]);
  return 0;
}

}  // namespace
}  // namespace hyper_parallel

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: fault_saver DIRECTORY GENERATION LIMIT_MS\n";
    return 2;
  }
  return hyper_parallel::run({argv[1], std::atoll(argv[2]), std::chrono::milliseconds(std::atoll(argv[3]))});
}
