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
#include "hyper_parallel/tools/inspect_command.h"
#include "hyper_parallel/tools/plan_command.h"

#ifndef HYPER_PARALLEL_VERSION
#error "HYPER_PARALLEL_VERSION is the project's version; the build sets it"
#endif

namespace hyper_parallel {
namespace {

enum ExitCode { kOk = 0, kBadInput = 1, kUsage = 2 };

constexpr size_t kMaxMessage = 600;
constexpr size_t kKeptEnd = 200;

constexpr auto kPlanFooter = R"text(Placements, one for each mesh dim:
  Replicate() or R    Shard(d) or S(d)    Partial(op) or P(op), op one of sum, avg, max, min
  RaggedShard(dims, units) or Ragged(dims, units), units with repetition: (1*500, 3*500)
  @FILE reads them from a file, - from standard input.

Example: two ranks, the second with twice the rows, to even shards; and what rank 1 does
  hyper-parallel plan --shape 6,4,8 --mesh 2 --from "Ragged((0,), (1, 2))" --to "S(0)" --rank 1)text";

constexpr auto kInspectFooter = R"text(Example:
  hyper-parallel inspect model.safetensors)text";

constexpr auto kFooter = R"text(Examples:
  hyper-parallel plan --shape 6,4,8 --mesh 2 --from "Ragged((0,), (1, 2))" --to "S(0)"
  hyper-parallel inspect model.safetensors

Exit codes: 0 ok, 1 the input is bad or cannot be read, 2 usage.)text";

/// The parsed command line. CLI11 keeps pointers into it, so it stays where it is.
struct CommandLine {
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void add_plan();
  void add_inspect();
  void run(std::istream& in, std::ostream& out) const;

  CLI::App app{"Tools for tensors distributed unevenly over ranks.", "hyper-parallel"};
  CLI::App* plan = nullptr;
  CLI::App* inspect = nullptr;
  PlanOptions plan_options;
  std::string inspect_path;
  bool json = false;
};

CommandLine::CommandLine() {
  app.set_version_flag("--version", "hyper-parallel " HYPER_PARALLEL_VERSION);
  app.require_subcommand(1);
  app.footer(kFooter);
  add_plan();
  add_inspect();
}

void CommandLine::add_plan() {
  plan = app.add_subcommand("plan", "Explain a redistribution: its steps, the bytes it moves, the memory it takes.");
  PlanOptions& options = plan_options;
  plan->add_option("--shape", options.shape, "The tensor's global shape, e.g. 6,4,8; \"\" for no dims")->required();
  plan->add_option("--mesh", options.mesh, "The mesh's shape, e.g. 2,2")->required();
  plan->add_option("--from", options.from, "The source's placements, e.g. \"[Shard(0), R]\"")->required();
  plan->add_option("--to", options.to, "The target's placements")->required();
  plan->add_option("--names", options.names, "Names of the mesh dims, e.g. dp,tp");
  plan->add_option("--ranks", options.ranks, "The ranks in mesh order, e.g. 0,2,1,3 or 4-7,0-3 (0,1,.. if not given)");
  plan->add_option("--to-mesh", options.to_mesh, "The target's mesh, where it is another one over the same ranks");
  plan->add_option("--to-names", options.to_names, "Names of its dims");
  plan->add_option("--dtype", options.dtype, "The element type that bytes are counted in (float32 if not given)");
  plan->add_option("--rank", options.rank, "Show also what this rank sends, receives and keeps");
  plan->add_flag("--json", json, "Print JSON")->disable_flag_override();
  plan->footer(kPlanFooter);
}

void CommandLine::add_inspect() {
  inspect = app.add_subcommand("inspect", "List the tensors of a safetensors file.");
  inspect->add_option("FILE", inspect_path, "The file")->required();
  inspect->add_flag("--json", json, "Print JSON")->disable_flag_override();
  inspect->footer(kInspectFooter);
}

void CommandLine::run(std::istream& in, std::ostream& out) const {
  if (plan->parsed()) {
    explain_plan(plan_options, json ? PlanFormat::kJson : PlanFormat::kText, in, out);
  } else {
    inspect_safetensors(inspect_path, {json ? InspectFormat::kJson : InspectFormat::kTable}, out);
  }
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
  const std::string_view command = line.plan->parsed() ? "plan " : line.inspect->parsed() ? "inspect " : "";
  return str_cat(fault, " (see hyper-parallel ", command, "--help)");
}

/// Parses; the exit code where that is all there is to do.
std::optional<int> parse(CommandLine& line, std::vector<std::string> arguments, std::ostream& out, std::ostream& err) {
  try {
    line.app.parse(std::move(arguments));
    return std::nullopt;
  } catch (const CLI::Success& success) {  // --help and --version
    return line.app.exit(success, out, err);
  } catch (const CLI::ParseError& error) {
    return fail(kUsage, usage_text(line, error), err);
  }
}

}  // namespace

int run_command_line(int argc, const char* const* argv, std::istream& in, std::ostream& out, std::ostream& err) {
  try {
    CommandLine line;
    if (const auto code = parse(line, reversed_arguments(argc, argv), out, err)) return *code;
    line.run(in, out);
    if (!out.flush()) return fail(kBadInput, "cannot write the output", err);
    return kOk;
  } catch (const std::bad_alloc&) {
    return fail(kBadInput, "out of memory", err);
  } catch (const std::exception& error) {
    return fail(kBadInput, error.what(), err);
  }
}

std::string one_line(std::string_view message) {
  if (message.size() <= kMaxMessage) return printable(message);
  return str_cat(printable(message.substr(0, kMaxMessage - kKeptEnd)), " ... ",
                 printable(message.substr(message.size() - kKeptEnd)));
}

}  // namespace hyper_parallel
