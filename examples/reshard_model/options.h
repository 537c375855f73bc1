#pragma once

// The command line of reshard_model.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <vector>

namespace hyper_parallel::examples {

struct Options {
  std::filesystem::path file;
  int ranks = 4;
  std::vector<int64_t> units;  // one per rank
  uint16_t port = 0;           // 0: the processes meet through a file
};

/// The arguments do not make sense; the reason is already printed.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Nothing if only help was asked for. Throws UsageError after printing one line on `err`, also for units that are not
/// one for each rank or make no RaggedShard.
std::optional<Options> parse_options(int argc, char** argv, std::ostream& out, std::ostream& err);

/// Unlike units for `ranks` ranks, a zero among them: 1, 2, 0, 5 over and over.
std::vector<int64_t> default_units(int ranks);

}  // namespace hyper_parallel::examples
