#include <sys/resource.h>
#include <unistd.h>

#include <iostream>

#include "hyper_parallel/checkpoint/progress_bar.h"
#include "hyper_parallel/tools/command_line.h"
#include "hyper_parallel/tools/subcommands.h"

namespace {

/// A checkpoint of many ranks has many files, and a shell's limit is often 1024 where the system allows far more.
void raise_open_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  raise_open_file_limit();
  const auto progress = hyper_parallel::terminal_progress(STDERR_FILENO);
  return hyper_parallel::run_command_line(argc, argv, {std::cin, std::cout, *progress}, std::cerr);
}
