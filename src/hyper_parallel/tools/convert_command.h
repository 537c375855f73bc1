#pragma once

// `hyper-parallel convert IN OUT --to FORMAT`: turns a checkpoint of one format into another.
//
//   hyper_parallel   a checkpoint directory of this library
//   huggingface      a folder with model.safetensors, or shards and model.safetensors.index.json
//   torch            a directory of torch.distributed.checkpoint: .metadata (a pickle) and *.distcp
//
// The first two are converted here, in bounded memory. Torch's is converted from and to ours by the Python package, in
// a child process; between torch's and Hugging Face's it is a step more, over a temporary checkpoint beside OUT.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/tools/child_process.h"

namespace hyper_parallel {

enum class CheckpointFormat { kHyperParallel, kHuggingface, kTorch };

/// "hyper_parallel", "huggingface", "torch".
std::string_view to_string(CheckpointFormat format);
/// The reverse. Throws kInvalidArgument for other text.
CheckpointFormat parse_checkpoint_format(std::string_view text);

/// The format of what lies in a folder. Throws kInvalidArgument if it is none of these.
CheckpointFormat detect_checkpoint_format(const std::filesystem::path& path);

enum class ValuePolicy { kRefuse, kDrop };

struct ConvertOptions {
  CheckpointFormat to = CheckpointFormat::kHyperParallel;
  /// To huggingface: the most bytes of a file's data, unless a single tensor has more.
  std::optional<int64_t> max_file_size;  // 5 GB if not given
  /// To huggingface: what becomes of entries that are no tensors.
  ValuePolicy values = ValuePolicy::kRefuse;
  /// Runs a program to its end and returns its exit code. Throws kFailedPrecondition if it cannot be started.
  std::function<int(const std::vector<std::string>& arguments)> run = run_program;
  std::string python = "python3";
};

inline constexpr int64_t kDefaultMaxFileSize = 5'000'000'000;

/// Throws kInvalidArgument if OUT is IN, IN already has the format, or an option is not one of the format; else as
/// `checkpoint_to_huggingface`, `huggingface_to_checkpoint` and `convert_torch`.
void convert_checkpoint(const std::filesystem::path& in, const std::filesystem::path& out,
                        const ConvertOptions& options, Progress& progress);

/// Writes each tensor whole, under its name, into shards "model-00001-of-00003.safetensors" of at most
/// `max_file_size` bytes of data (one tensor at least), filled in the order of names, and the index last. OUT must be
/// empty or not be there. Throws kInvalidArgument if it is not, or if the checkpoint has values and these are not to be
/// dropped. After a fault what was written is removed.
void checkpoint_to_huggingface(const std::filesystem::path& in, const std::filesystem::path& out, int64_t max_file_size,
                               ValuePolicy values, Progress& progress);

/// Copies a folder into a checkpoint of one rank, whole tensors, published as a save publishes. Throws as
/// HuggingfaceFolder and FileSystemWriter do. After a fault OUT is as it was, but that the directory may be new and
/// have a `.save.lock`, which every saver leaves.
void huggingface_to_checkpoint(const std::filesystem::path& in, const std::filesystem::path& out, Progress& progress);

/// Converts from torch's format into `options.to`, or from the format `from` into torch's. A temporary checkpoint on
/// the way is removed, whatever happens. Throws kFailedPrecondition if Python cannot be run, or if its exit code is not
/// 0: what went wrong then stands on standard error. Throws kInvalidArgument if a second step would find OUT in use.
void convert_torch(const std::filesystem::path& in, CheckpointFormat from, const std::filesystem::path& out,
                   const ConvertOptions& options, Progress& progress);

/// Throws kInvalidArgument unless nothing is at OUT or an empty directory.
void check_out_is_free(const std::filesystem::path& out);

}  // namespace hyper_parallel
