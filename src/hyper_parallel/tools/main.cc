#include <iostream>

#include "hyper_parallel/tools/command_line.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  return hyper_parallel::run_command_line(argc, argv, std::cin, std::cout, std::cerr);
}
