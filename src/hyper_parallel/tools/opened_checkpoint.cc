#include "hyper_parallel/tools/opened_checkpoint.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <span>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"

namespace hyper_parallel {
namespace {

CheckpointMetadata parse_text(const Directory& directory, const std::optional<std::string>& text) {
  HP_CHECK(text.has_value(), kInvalidArgument, "there is no checkpoint in ", quoted_path(directory.path()),
           ": it has no '", kMetadataFile, "'");
  return parse_metadata(std::as_bytes(std::span(*text)), quoted_path(directory.path() / kMetadataFile));
}

// A tool may read two checkpoints; the last third is for what it writes and for its standard streams.
size_t max_open_files() {
  constexpr rlim_t kWithoutLimit = 1024;
  rlimit limit{};
  const rlim_t most = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : kWithoutLimit;
  return static_cast<size_t>(most / 3);
}

FileDescriptor duplicate(const FileDescriptor& file, std::string_view source) {
  const int descriptor = ::fcntl(file.get(), F_DUPFD_CLOEXEC, 0);
  const int error = errno;
  HP_CHECK(descriptor >= 0, kFailedPrecondition, "cannot open ", source, ": ", errno_text(error));
  return FileDescriptor(descriptor);
}

}  // namespace

CheckpointMetadata read_checkpoint_metadata(const std::filesystem::path& directory) {
  const Directory opened(directory);
  return parse_text(opened, read_metadata_file(opened));
}

OpenedCheckpoint::OpenedCheckpoint(std::filesystem::path path, ReadText read_text)
    : directory_(std::move(path)),
      read_text_(std::move(read_text)),
      metadata_(parse_text(directory_, read_text_(directory_))) {
  for (int replacements = 0; !keep_files_open(); ++replacements) {
    std::optional<CheckpointMetadata> newer = newer_metadata();
    if (!newer.has_value()) return;
    HP_CHECK(replacements < kMostReplacements, kFailedPrecondition, "the checkpoint in ",
             quoted_path(directory_.path()), " was replaced by a newer save more than ", kMostReplacements,
             " times while it was being opened; read it when no save is running");
    metadata_ = std::move(*newer);
  }
}

// True if no file is missing. Opens them all, since a missing one may be a true fault of which the others have no part.
bool OpenedCheckpoint::keep_files_open() {
  files_.clear();
  const size_t most = max_open_files();
  bool is_complete = true;
  for (int64_t file = 0; file < std::ssize(metadata_.files()); ++file) {
    try {
      std::optional<FileDescriptor> opened = open(file);
      is_complete = is_complete && opened.has_value();
      if (opened.has_value() && files_.size() < most) files_.emplace(file, std::move(*opened));
    } catch (const Error&) {
      continue;  // thrown again when the file is asked for
    }
  }
  return is_complete;
}

std::optional<CheckpointMetadata> OpenedCheckpoint::newer_metadata() const {
  const std::optional<std::string> text = read_text_(directory_);
  if (!text.has_value()) return std::nullopt;
  CheckpointMetadata metadata = parse_text(directory_, text);
  if (metadata.save_id() == metadata_.save_id()) return std::nullopt;
  return metadata;
}

std::string OpenedCheckpoint::quoted(int64_t file) const {
  return quoted_path(directory_.path() / metadata_.files()[static_cast<size_t>(file)].name);
}

std::optional<FileDescriptor> OpenedCheckpoint::open(int64_t file) const {
  const auto kept = files_.find(file);
  if (kept != files_.end()) return duplicate(kept->second, quoted(file));
  return directory_.open_regular(metadata_.files()[static_cast<size_t>(file)].name, O_RDONLY);
}

void OpenedCheckpoint::check_not_replaced(int64_t file) const {
  HP_CHECK(!newer_metadata().has_value(), kFailedPrecondition, "checkpoint file ", quoted(file),
           " is gone: a newer save replaced the checkpoint while it was being read; read it when no save is running");
}

}  // namespace hyper_parallel
