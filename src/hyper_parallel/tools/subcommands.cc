#include "hyper_parallel/tools/subcommands.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/tools/byte_count.h"
#include "hyper_parallel/tools/convert_command.h"
#include "hyper_parallel/tools/diff_command.h"
#include "hyper_parallel/tools/inspect_checkpoint.h"
#include "hyper_parallel/tools/inspect_command.h"
#include "hyper_parallel/tools/plan_command.h"
#include "hyper_parallel/tools/reshard_command.h"
#include "hyper_parallel/tools/verify_command.h"

namespace hyper_parallel {
namespace {

constexpr auto kPlanFooter = R"text(Placements, one for each mesh dim:
  Replicate() or R    Shard(d) or S(d)    Partial(op) or P(op), op one of sum, avg, max, min
  RaggedShard(dims, units) or Ragged(dims, units), units with repetition: (1*500, 3*500)
  @FILE reads them from a file, - from standard input.

Example: two ranks, the second with twice the rows, to even shards; and what rank 1 does
  hyper-parallel plan --shape 6,4,8 --mesh 2 --from "Ragged((0,), (1, 2))" --to "S(0)" --rank 1)text";

constexpr auto kInspectFooter = R"text(Examples:
  hyper-parallel inspect model.safetensors
  hyper-parallel inspect checkpoints/step-1000 --picture encoder.weight)text";

constexpr auto kVerifyFooter = R"text(Data files of saves that did not finish are no fault.
Exit codes: 0 no fault; 1 there is a fault; 2 usage, or DIR cannot be opened.

Example:
  hyper-parallel verify checkpoints/step-1000)text";

constexpr auto kDiffFooter =
    R"text(How the tensors are cut into chunks and files does not count.
Exit codes: 0 equal; 1 they differ; 2 usage, or one of them cannot be read or is damaged.

Example:
  hyper-parallel diff checkpoints/step-1000 checkpoints/step-1000-resharded)text";

constexpr auto kReshardFooter =
    R"text(The layout is RaggedShard(dims, units), Shard(DIM) or Replicate on N ranks in a row; without any, Shard(0).
A tensor that it does not fit (a RaggedShard whose units do not divide it, a dim that it does not have) is an error,
unless --fallback allows: shard, which is Shard(0), a tensor without dims replicated; or replicate.

Example: 48 ranks, the second half of them with three times the share of the first
  hyper-parallel reshard checkpoints/step-1000 resharded --ranks 48 --units "1*24,3*24" --fallback shard)text";

constexpr auto kConvertFooter = R"text(Formats, that of IN is detected:
  hyper_parallel   a checkpoint directory of this library
  huggingface      model.safetensors, or shards and model.safetensors.index.json
  torch            a directory of torch.distributed.checkpoint; needs Python with torch and the package
                   hyper_parallel: $HYPER_PARALLEL_PYTHON, python3 if that is not set

Example:
  hyper-parallel convert checkpoints/step-1000 model --to huggingface --max-file-size 2GB)text";

Subcommand add_plan(CLI::App& app) {
  struct Parsed {
    PlanOptions options;
    bool json = false;
  };
  const auto parsed = std::make_shared<Parsed>();
  PlanOptions& options = parsed->options;
  auto* plan =
      app.add_subcommand("plan", "Explain a redistribution: its steps, the bytes it moves, the memory it takes.");
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
  plan->add_flag("--json", parsed->json, "Print JSON")->disable_flag_override();
  plan->footer(kPlanFooter);
  return {plan, [parsed](const CommandStreams& streams) {
            explain_plan(parsed->options, parsed->json ? PlanFormat::kJson : PlanFormat::kText, streams.in,
                         streams.out);
            return kOk;
          }};
}

Subcommand add_inspect(CLI::App& app) {
  struct Parsed {
    std::string path;
    std::optional<std::string> tensor;
    bool json = false;
  };
  const auto parsed = std::make_shared<Parsed>();
  auto* inspect = app.add_subcommand("inspect", "List what a checkpoint directory or a safetensors file holds.");
  inspect->add_option("PATH", parsed->path, "The directory or file")->required();
  auto* json = inspect->add_flag("--json", parsed->json, "Print JSON")->disable_flag_override();
  const auto* picture =
      inspect->add_option("--picture", parsed->tensor, "Draw which file holds which cells, of one tensor or of all")
          ->expected(0, 1)
          ->type_name("[NAME]")
          ->excludes(json);
  inspect->footer(kInspectFooter);
  return {inspect, [parsed, picture](const CommandStreams& streams) {
            const bool is_directory = std::filesystem::is_directory(parsed->path);
            const InspectFormat format = parsed->json ? InspectFormat::kJson : InspectFormat::kTable;
            if (picture->count() > 0) {
              HP_CHECK(is_directory, kInvalidArgument, "--picture draws a checkpoint directory, not a file");
              const bool all = !parsed->tensor || parsed->tensor->empty();
              picture_checkpoint(parsed->path, all ? std::nullopt : parsed->tensor, streams.out);
            } else if (is_directory) {
              inspect_checkpoint(parsed->path, format, streams.out);
            } else {
              inspect_safetensors(parsed->path, {.format = format}, streams.out);
            }
            return kOk;
          }};
}

Subcommand add_verify(CLI::App& app) {
  struct Parsed {
    std::string path;
    bool json = false;
  };
  const auto parsed = std::make_shared<Parsed>();
  auto* verify = app.add_subcommand("verify", "Read all of a checkpoint and check every byte of it.");
  verify->add_option("DIR", parsed->path, "The checkpoint directory")->required();
  verify->add_flag("--json", parsed->json, "Print JSON")->disable_flag_override();
  verify->footer(kVerifyFooter);
  return {verify,
          [parsed](const CommandStreams& streams) {
            const VerifyFormat format = parsed->json ? VerifyFormat::kJson : VerifyFormat::kText;
            return verify_checkpoint(parsed->path, format, streams.out, streams.progress) ? kOk : kBad;
          },
          kTrouble};
}

Subcommand add_diff(CLI::App& app) {
  struct Parsed {
    std::string a;
    std::string b;
    bool json = false;
  };
  const auto parsed = std::make_shared<Parsed>();
  auto* diff =
      app.add_subcommand("diff", "Compare what two checkpoints hold: names, dtypes, shapes, values, contents.");
  diff->add_option("A", parsed->a, "A checkpoint directory")->required();
  diff->add_option("B", parsed->b, "Another one")->required();
  diff->add_flag("--json", parsed->json, "Print JSON")->disable_flag_override();
  diff->footer(kDiffFooter);
  return {diff,
          [parsed](const CommandStreams& streams) {
            const DiffFormat format = parsed->json ? DiffFormat::kJson : DiffFormat::kText;
            return diff_checkpoints(parsed->a, parsed->b, format, streams.out, streams.progress) ? kOk : kBad;
          },
          kTrouble};
}

/// The byte count of an option.
int64_t byte_option(std::string_view option, const std::string& text) {
  try {
    return parse_byte_count(text);
  } catch (const Error& error) {
    raise(error.code(), option, ": ", error.what());
  }
}

Subcommand add_reshard(CLI::App& app) {
  struct Parsed {
    std::string in;
    std::string out;
    ReshardLayoutOptions layout;
    std::string memory = "256MiB";
  };
  const auto parsed = std::make_shared<Parsed>();
  ReshardLayoutOptions& layout = parsed->layout;
  auto* reshard = app.add_subcommand("reshard", "Rewrite a checkpoint as other ranks with another layout save it.");
  reshard->add_option("IN", parsed->in, "The checkpoint directory")->required();
  reshard->add_option("OUT", parsed->out, "The directory to write; a checkpoint in it is replaced")->required();
  reshard->add_option("--ranks", layout.ranks, "The number of ranks, N")->required();
  reshard->add_option("--units", layout.units,
                      "RaggedShard with these units, one for each rank, e.g. 1,2,0,5 or 1*24,3*24");
  reshard->add_option("--dims", layout.dims, "The dims that the units deal out, e.g. 0,1 (0 if not given)");
  reshard->add_option("--shard", layout.shard, "Shard(DIM)")->type_name("DIM");
  reshard->add_flag("--replicate", layout.replicate, "Replicate")->disable_flag_override();
  reshard->add_option("--fallback", layout.fallback, "For tensors that the layout does not fit: shard or replicate");
  reshard->add_option("--memory", parsed->memory, "The most memory for tensors' bytes (256MiB if not given)");
  reshard->footer(kReshardFooter);
  return {reshard, [parsed](const CommandStreams& streams) {
            const ReshardOptions options{read_reshard_layout(parsed->layout), byte_option("--memory", parsed->memory)};
            reshard_checkpoint(parsed->in, parsed->out, options, streams.progress);
            return kOk;
          }};
}

Subcommand add_convert(CLI::App& app) {
  struct Parsed {
    std::string in;
    std::string out;
    std::string to;
    std::optional<std::string> max_file_size;
    bool drop_values = false;
  };
  const auto parsed = std::make_shared<Parsed>();
  auto* convert =
      app.add_subcommand("convert", "Turn a checkpoint into another format: ours, Hugging Face's or torch's.");
  convert->add_option("IN", parsed->in, "The directory to read")->required();
  convert->add_option("OUT", parsed->out, "The directory to write")->required();
  convert->add_option("--to", parsed->to, "hyper_parallel, huggingface or torch")->required();
  convert->add_option("--max-file-size", parsed->max_file_size,
                      "To huggingface: the most bytes of tensors in a file (5GB if not given)");
  convert->add_flag("--drop-values", parsed->drop_values, "To huggingface: leave out entries that are no tensors")
      ->disable_flag_override();
  convert->footer(kConvertFooter);
  return {convert, [parsed](const CommandStreams& streams) {
            ConvertOptions options;
            options.to = parse_checkpoint_format(parsed->to);
            if (parsed->max_file_size) options.max_file_size = byte_option("--max-file-size", *parsed->max_file_size);
            if (parsed->drop_values) options.values = ValuePolicy::kDrop;
            if (const char* python = std::getenv("HYPER_PARALLEL_PYTHON"); python != nullptr && *python != '\0') {
              options.python = python;
            }
            convert_checkpoint(parsed->in, parsed->out, options, streams.progress);
            return kOk;
          }};
}

}  // namespace

std::vector<Subcommand> add_subcommands(CLI::App& app) {
  return {add_plan(app), add_inspect(app), add_verify(app), add_diff(app), add_reshard(app), add_convert(app)};
}

}  // namespace hyper_parallel
