#pragma once

// The command line of bench_collectives.

#include <cstdint>
#include <optional>
#include <ostream>
#include <regex>
#include <stdexcept>

namespace hyper_parallel::benchmarks {

enum class OutputFormat { kTable, kJson };

struct Options {
  int64_t pairs = 21;
  int64_t size_mib = 64;  // of the global tensor, float32
  std::regex only{""};    // rows whose text it finds are run
  OutputFormat format = OutputFormat::kTable;
};

/// The arguments do not make sense; the reason is already printed.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Nothing if only help was asked for. Throws UsageError after printing one line on `err`.
std::optional<Options> parse_options(int argc, char** argv, std::ostream& out, std::ostream& err);

}  // namespace hyper_parallel::benchmarks
