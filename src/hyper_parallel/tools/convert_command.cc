#include "hyper_parallel/tools/convert_command.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <span>
#include <system_error>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/directory.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/huggingface_folder.h"
#include "hyper_parallel/tools/safetensors_reader.h"

namespace hyper_parallel {
namespace {

struct FormatName {
  CheckpointFormat format;
  std::string_view name;
};

constexpr std::array kFormats = {FormatName{CheckpointFormat::kHyperParallel, "hyper_parallel"},
                                 FormatName{CheckpointFormat::kHuggingface, "huggingface"},
                                 FormatName{CheckpointFormat::kTorch, "torch"}};

/// The first bytes of `.metadata`: enough to tell JSON of this library from a pickle.
std::string metadata_head(const FileDescriptor& file, const std::string& source) {
  constexpr int64_t kHeadBytes = 256;
  std::string head(static_cast<size_t>(std::min(kHeadBytes, file_size(file, source))), '\0');
  read_exactly(file, 0, std::as_writable_bytes(std::span(head)), source);
  return head;
}

bool is_pickle(std::string_view head) {
  constexpr char kProtocol = '\x80';  // the opcode that every pickle of protocol 2 and later begins with
  return head.starts_with(kProtocol);
}

/// Options that would do nothing are refused.
void check_options(const ConvertOptions& options) {
  if (options.to == CheckpointFormat::kHuggingface) return;
  HP_CHECK(!options.max_file_size, kInvalidArgument, "--max-file-size is an option of --to huggingface, not of --to ",
           to_string(options.to));
  HP_CHECK(options.values == ValuePolicy::kRefuse, kInvalidArgument,
           "--drop-values is an option of --to huggingface, not of --to ", to_string(options.to),
           ", which keeps values");
}

}  // namespace

std::string_view to_string(CheckpointFormat format) {
  return std::ranges::find(kFormats, format, &FormatName::format)->name;
}

CheckpointFormat parse_checkpoint_format(std::string_view text) {
  const auto* found = std::ranges::find(kFormats, text, &FormatName::name);
  HP_CHECK(found != kFormats.end(), kInvalidArgument, "--to: ", quoted_name(text),
           " is not one of hyper_parallel, huggingface, torch");
  return found->format;
}

CheckpointFormat detect_checkpoint_format(const std::filesystem::path& path) {
  const Directory directory(path);
  const std::string metadata(kMetadataFile);
  if (const auto file = directory.open_regular(metadata, O_RDONLY)) {
    const std::string source = quoted_path(path / metadata);
    const std::string head = metadata_head(*file, source);
    if (looks_like_metadata(std::as_bytes(std::span(head)))) return CheckpointFormat::kHyperParallel;
    if (is_pickle(head)) return CheckpointFormat::kTorch;
    raise(ErrorCode::kInvalidArgument, source, " is neither this library's nor torch.distributed.checkpoint's");
  }
  for (const std::string_view name : {kHuggingfaceFile, kHuggingfaceIndex}) {
    if (directory.status(std::string(name))) return CheckpointFormat::kHuggingface;
  }
  raise(ErrorCode::kInvalidArgument, quoted_path(path), " holds no checkpoint: neither '", kMetadataFile, "' nor '",
        kHuggingfaceFile, "' nor '", kHuggingfaceIndex, "'");
}

void convert_checkpoint(const std::filesystem::path& in, const std::filesystem::path& out,
                        const ConvertOptions& options, Progress& progress) {
  check_options(options);
  const CheckpointFormat from = detect_checkpoint_format(in);
  HP_CHECK(from != options.to, kInvalidArgument, quoted_path(in), " is in the format ", to_string(from), " already");
  std::error_code ignored;  // a path that is not there shows when it is opened
  HP_CHECK(!std::filesystem::equivalent(in, out, ignored), kInvalidArgument, "OUT is IN, ", quoted_path(in),
           "; a checkpoint is converted into another directory");
  if (from == CheckpointFormat::kTorch || options.to == CheckpointFormat::kTorch) {
    return convert_torch(in, from, out, options, progress);
  }
  if (from == CheckpointFormat::kHuggingface) return huggingface_to_checkpoint(in, out, progress);
  checkpoint_to_huggingface(in, out, options.max_file_size.value_or(kDefaultMaxFileSize), options.values, progress);
}

}  // namespace hyper_parallel
