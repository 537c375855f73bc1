#include "benchmarks/bench_collectives/options.h"

#include <CLI/CLI.hpp>
#include <string>

namespace hyper_parallel::benchmarks {
namespace {

constexpr int64_t kMostPairs = 100'000;
constexpr int64_t kMostMebibytes = 1024;

/// An empty text if `pattern` is a regular expression, else what is wrong with it.
std::string regex_fault(const std::string& pattern) {
  try {
    const std::regex compiled(pattern);
    return "";
  } catch (const std::regex_error& error) {
    return "'" + pattern + "' is not a regular expression: " + error.what();
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, std::ostream& out, std::ostream& err) {
  Options options;
  std::string only;
  bool json = false;
  CLI::App app(
      "Times the collectives and redistributions between processes, each beside a baseline.\n"
      "Example: bench_collectives --only 'all-gather' --pairs 41");
  app.add_option("--pairs", options.pairs, "timed pairs of each row (default 21; fewer than 15 say little)")
      ->check(CLI::Range(int64_t{1}, kMostPairs));
  app.add_option("--size-mib", options.size_mib, "size of the whole tensor in MiB (default 64)")
      ->check(CLI::Range(int64_t{1}, kMostMebibytes));
  app.add_option("--only", only, "run the rows in whose text this regular expression is found")->check(regex_fault);
  app.add_flag("--json", json, "print one JSON document instead of the table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    out << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    err << "bench_collectives: " << error.what() << "\n";
    throw UsageError(error.what());
  }
  options.only = std::regex(only);
  options.format = json ? OutputFormat::kJson : OutputFormat::kTable;
  return options;
}

}  // namespace hyper_parallel::benchmarks
