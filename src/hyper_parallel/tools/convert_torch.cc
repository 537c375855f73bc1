#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/directory.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/convert_command.h"

namespace hyper_parallel {
namespace {

/// A new directory beside OUT, on its file system, for a checkpoint of ours. It goes at the end, with the files in it.
class TemporaryCheckpoint {
 public:
  explicit TemporaryCheckpoint(const std::filesystem::path& out) : directory_(make(out)) {}
  ~TemporaryCheckpoint() {
    try {
      for (const std::string& name : directory_.names()) directory_.remove(name);
    } catch (const std::exception&) {  // what cannot be listed stays, and rmdir leaves alone what is not empty
    }
    ::rmdir(path().c_str());
  }
  TemporaryCheckpoint(const TemporaryCheckpoint&) = delete;
  TemporaryCheckpoint& operator=(const TemporaryCheckpoint&) = delete;

  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  static Directory make(const std::filesystem::path& out) {
    std::error_code error;
    // Without links, "." and a slash at the end, so that its parent is where it will lie.
    const std::filesystem::path resolved =
        std::filesystem::weakly_canonical(std::filesystem::absolute(out) / ".", error);
    HP_CHECK(!error, kInvalidArgument, "cannot find OUT, ", quoted_path(out), ": ", error.message());
    const std::filesystem::path target = resolved.has_filename() ? resolved : resolved.parent_path();
    std::string name = (target.parent_path() / ".hyper-parallel-convert-XXXXXX").native();
    const bool is_made = ::mkdtemp(name.data()) != nullptr;
    const int reason = errno;
    HP_CHECK(is_made, kInvalidArgument, "cannot create a temporary directory in ", quoted_path(target.parent_path()),
             ", beside OUT: ", errno_text(reason));
    return Directory(std::move(name));
  }

  Directory directory_;
};

/// A path that no program takes for an option.
std::string argument_path(const std::filesystem::path& path) {
  return path.native().starts_with('-') ? str_cat("./", path.native()) : path.native();
}

int run_python(const std::vector<std::string>& arguments, const ConvertOptions& options) {
  try {
    return options.run(arguments);
  } catch (const Error& error) {
    raise(error.code(), error.what(),
          "; torch checkpoints are converted by Python with torch and the package hyper_parallel: install both, or "
          "name such a Python in HYPER_PARALLEL_PYTHON");
  }
}

/// The step that Python does: of torch's and our format one is IN's, the other is OUT's.
void convert_with_python(const std::filesystem::path& in, const std::filesystem::path& out, CheckpointFormat to,
                         const ConvertOptions& options) {
  // -P: a torch.py that lies in the current folder is not imported.
  const int code = run_python({options.python, "-P", "-m", "hyper_parallel.checkpoint.convert", argument_path(in),
                               argument_path(out), "--to", std::string(to_string(to))},
                              options);
  HP_CHECK(code == 0, kFailedPrecondition, quoted_path(options.python),
           ", which converts torch checkpoints, ended with exit code ", code, "; its message stands above");
}

}  // namespace

void check_out_is_free(const std::filesystem::path& out) {
  std::error_code ignored;  // what cannot be examined cannot be opened or made either
  if (std::filesystem::symlink_status(out, ignored).type() == std::filesystem::file_type::not_found) return;
  const std::vector<std::string> names = Directory(out).names();
  HP_CHECK(names.empty(), kInvalidArgument, "OUT, ", quoted_path(out), ", is not empty: it holds ",
           quoted_name(*std::ranges::min_element(names)), ", for example");
}

void convert_torch(const std::filesystem::path& in, CheckpointFormat from, const std::filesystem::path& out,
                   const ConvertOptions& options, Progress& progress) {
  if (from != CheckpointFormat::kHuggingface && options.to != CheckpointFormat::kHuggingface) {
    return convert_with_python(in, out, options.to, options);
  }
  check_out_is_free(out);
  const TemporaryCheckpoint ours(out);
  if (from == CheckpointFormat::kHuggingface) {
    huggingface_to_checkpoint(in, ours.path(), progress);
    convert_with_python(ours.path(), out, CheckpointFormat::kTorch, options);
  } else {
    convert_with_python(in, ours.path(), CheckpointFormat::kHyperParallel, options);
    checkpoint_to_huggingface(ours.path(), out, options.max_file_size.value_or(kDefaultMaxFileSize), options.values,
                              progress);
  }
}

}  // namespace hyper_parallel
