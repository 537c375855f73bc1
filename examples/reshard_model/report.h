#pragma once

// What the run found, as a table for a person.

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace hyper_parallel::examples {

struct PhaseResult {
  std::string name;
  int64_t tensors = 0;             // that took part
  int64_t bytes_moved = 0;         // of tensor data that the phase dealt with: the size of the tensors that took part
  int64_t bytes_sent = 0;          // over all ranks, as the counting process group saw them
  int64_t lower_bound = 0;         // the least that all ranks together must receive
  double seconds = 0;              // of the slowest rank
  std::vector<std::string> wrong;  // names of tensors that differ from the file
};

/// "12.3 MB", powers of 1000.
std::string bytes_text(int64_t bytes);

void print_header(std::ostream& out);
/// GB/s are those of the tensors dealt with, whether or not they crossed a process.
void print_row(std::ostream& out, const PhaseResult& phase);

}  // namespace hyper_parallel::examples
