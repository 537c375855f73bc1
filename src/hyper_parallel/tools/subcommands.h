#pragma once

// The subcommands of `hyper-parallel`: their options, and how each is run once they are parsed.

#include <CLI/CLI.hpp>
#include <functional>
#include <istream>
#include <ostream>
#include <vector>

#include "hyper_parallel/checkpoint/progress.h"

namespace hyper_parallel {

/// kBad: the input is bad or cannot be read; of `verify` and `diff`, there is a fault or they differ.
/// kTrouble: usage; of `verify` and `diff` also what keeps them from an answer.
enum ExitCode { kOk = 0, kBad = 1, kTrouble = 2 };

struct CommandStreams {
  std::istream& in;
  std::ostream& out;
  Progress& progress;
};

struct Subcommand {
  const CLI::App* app = nullptr;
  std::function<ExitCode(const CommandStreams& streams)> run;
  ExitCode on_error = kBad;  // where `run` throws
};

/// Adds all subcommands to the command. What the options are parsed into lives as long as the result.
std::vector<Subcommand> add_subcommands(CLI::App& app);

}  // namespace hyper_parallel
