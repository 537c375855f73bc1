#include "examples/reshard_model/options.h"

#include <CLI/CLI.hpp>
#include <array>
#include <string>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/placement/placement.h"

namespace hyper_parallel::examples {
namespace {

constexpr int kMostRanks = 64;

/// Throws UsageError, after printing one line, unless there is a unit for each rank and they make a RaggedShard.
std::vector<int64_t> parsed_units(const std::string& text, int ranks, std::ostream& err) {
  try {
    const std::string tuple = str_cat("(", text, ")");
    Scanner scanner{std::string_view(tuple)};
    std::vector<int64_t> units = scanner.integer_tuple();
    scanner.finish();
    HP_CHECK(std::cmp_equal(units.size(), ranks), kInvalidArgument, "there are ", units.size(), " of them but ", ranks,
             " ranks");
    RaggedShard({0}, units);
    return units;
  } catch (const Error& error) {
    err << "reshard_model: --units " << text << ": " << error.what() << "\n";
    throw UsageError(error.what());
  }
}

}  // namespace

std::vector<int64_t> default_units(int ranks) {
  constexpr std::array<int64_t, 4> kPattern{1, 2, 0, 5};
  std::vector<int64_t> units;
  for (int rank = 0; rank < ranks; ++rank) units.push_back(kPattern[static_cast<size_t>(rank) % kPattern.size()]);
  return units;
}

std::optional<Options> parse_options(int argc, char** argv, std::ostream& out, std::ostream& err) {
  Options options;
  CLI::App app(
      "Distributes, computes on, redistributes and gathers every tensor of a safetensors file.\n"
      "Example: reshard_model --file model.safetensors --ranks 3 --units 3,0,1");
  app.add_option("--file", options.file, "a .safetensors file")->required();
  app.add_option("--ranks", options.ranks, "how many processes to start")->check(CLI::Range(1, kMostRanks));
  std::optional<std::string> units;
  app.add_option("--units", units, "relative shares, one per rank (default 1,2,0,5 over and over)");
  app.add_option("--port", options.port, "meet at this port of the loopback interface; 0: through a temporary file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    out << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    err << "reshard_model: " << error.what() << "\n";
    throw UsageError(error.what());
  }
  if (units) {
    options.units = parsed_units(*units, options.ranks, err);
  } else {
    options.units = default_units(options.ranks);
  }
  return options;
}

}  // namespace hyper_parallel::examples
