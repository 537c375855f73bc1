#include "hyper_parallel/tools/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/subcommands.h"

#ifndef HYPER_PARALLEL_VERSION
#error "HYPER_PARALLEL_VERSION is the project's version; the build sets it"
#endif

namespace hyper_parallel {
namespace {

constexpr size_t kMaxMessage = 600;
constexpr size_t kKeptEnd = 200;

constexpr auto kFooter = R"text(Examples:
  hyper-parallel plan --shape 6,4,8 --mesh 2 --from "Ragged((0,), (1, 2))" --to "S(0)"
  hyper-parallel inspect model.safetensors
  hyper-parallel verify checkpoints/step-1000
  hyper-parallel reshard checkpoints/step-1000 resharded --ranks 48

Exit codes: 0 ok; 1 the input is bad or cannot be read; 2 usage. Of verify and diff: 0 no fault, or equal; 1 a fault,
or they differ; 2 usage, or what keeps them from an answer.)text";

/// The parsed command line. CLI11 keeps pointers into it, so it stays where it is.
struct CommandLine {
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// The subcommand that was given, or nullptr.
  const Subcommand* given() const;

  CLI::App app{"Tools for tensors distributed unevenly over ranks, and for their checkpoints.", "hyper-parallel"};
  std::vector<Subcommand> subcommands;
};

CommandLine::CommandLine() {
  app.set_version_flag("--version", "hyper-parallel " HYPER_PARALLEL_VERSION);
  app.require_subcommand(1);
  app.footer(kFooter);
  subcommands = add_subcommands(app);
}

const Subcommand* CommandLine::given() const {
  const auto found = std::ranges::find_if(subcommands, [](const Subcommand& command) { return command.app->parsed(); });
  return found == subcommands.end() ? nullptr : &*found;
}

int fail(ExitCode code, std::string_view message, std::ostream& err) {
  err << "hyper-parallel: " << one_line(message) << "\n";
  return code;
}

/// The arguments in the parser's order, last first. "--shape=" becomes "--shape" "", or the parser would take the next
/// argument.
std::vector<std::string> reversed_arguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool is_empty_value = argument.starts_with("--") && argument.find('=') + 1 == argument.size();
    arguments.push_back(is_empty_value ? argument.substr(0, argument.size() - 1) : argument);
    if (is_empty_value) arguments.emplace_back();
  }
  std::ranges::reverse(arguments);
  return arguments;
}

std::string usage_text(const CommandLine& line, const CLI::ParseError& error) {
  // An unknown argument is the cause, and something that is missing beside it often the consequence.
  const std::vector<std::string> unknown = line.app.remaining(true);
  const std::string fault =
      unknown.empty() ? std::string(error.what()) : str_cat("unexpected argument '", unknown.front(), "'");
  const Subcommand* given = line.given();
  return str_cat(fault, " (see hyper-parallel ", given == nullptr ? "" : given->app->get_name() + " ", "--help)");
}

/// Parses; the exit code where that is all there is to do.
std::optional<int> parse(CommandLine& line, std::vector<std::string> arguments, std::ostream& out, std::ostream& err) {
  try {
    line.app.parse(std::move(arguments));
    return std::nullopt;
  } catch (const CLI::Success& success) {  // --help and --version
    return line.app.exit(success, out, err);
  } catch (const CLI::ParseError& error) {
    return fail(kTrouble, usage_text(line, error), err);
  }
}

}  // namespace

int run_command_line(int argc, const char* const* argv, const CommandStreams& streams, std::ostream& err) {
  ExitCode on_error = kBad;
  try {
    CommandLine line;
    if (const auto code = parse(line, reversed_arguments(argc, argv), streams.out, err)) return *code;
    const Subcommand& command = *line.given();
    on_error = command.on_error;
    const ExitCode code = command.run(streams);
    if (!streams.out.flush()) return fail(on_error, "cannot write the output", err);
    return code;
  } catch (const std::bad_alloc&) {
    return fail(on_error, "out of memory", err);
  } catch (const std::exception& error) {
    return fail(on_error, error.what(), err);
  }
}

std::string one_line(std::string_view message) {
  if (message.size() <= kMaxMessage) return printable(message);
  return str_cat(printable(message.substr(0, kMaxMessage - kKeptEnd)), " ... ",
                 printable(message.substr(message.size() - kKeptEnd)));
}

}  // namespace hyper_parallel
