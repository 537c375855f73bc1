// Takes a published model through the library: every tensor of a safetensors file is distributed over several processes
// with uneven shares, goes through every elementwise operation, is redistributed to other layouts and gathered, and is
// compared with the file bit for bit. Then it goes through a checkpoint: the processes save what they hold and exit,
// new ones load it, three of them under other units and dims and one as plain tensors, and compare again.
//
//   reshard_model --file model.safetensors [--ranks 4] [--units 1,2,0,5] [--port 0]
//
// Ends with three verdicts "bit-exact: 104 of 104" and exit code 0, or names what differs and ends with 1; 2 for wrong
// arguments.

#include <iostream>
#include <string_view>

#include "examples/reshard_model/checkpoint_phases.h"
#include "examples/reshard_model/model.h"
#include "examples/reshard_model/options.h"
#include "examples/reshard_model/rank_processes.h"
#include "examples/reshard_model/rank_program.h"
#include "hyper_parallel/base/error.h"

namespace {

using namespace hyper_parallel;
using namespace hyper_parallel::examples;

int fail(std::string_view message) {
  std::cerr << "reshard_model: " << message << "\n";
  return 1;
}

/// The phases one after the other, each in processes of its own: the next begins when all of the last have exited.
int run_all(const Options& options) {
  const TemporaryFolder folder;
  const std::filesystem::path checkpoint = folder.path() / "checkpoint";
  if (const int code =
          run_processes(options.ranks, [&](const ProcessContext& p) { run_rank(options, p, checkpoint); })) {
    return code;
  }
  if (const int code = run_processes(kLoadingProcesses,
                                     [&](const ProcessContext& p) { load_distributed(options, p, checkpoint); })) {
    return code;
  }
  return run_processes(1, [&](const ProcessContext&) { load_plain(options, checkpoint); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<Options> options = parse_options(argc, argv, std::cout, std::cerr);
    if (!options) return std::cout.flush() ? 0 : fail("cannot write the output");
    // Faults of the file are found here, once, before any process starts.
    check_model_file(options->file);
    return run_all(*options);
  } catch (const UsageError&) {
    return 2;
  } catch (const Error& error) {
    return fail(error.what());
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
