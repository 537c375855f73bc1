#include "hyper_parallel/checkpoint/file_system_reader.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/chunk_reader.h"
#include "hyper_parallel/checkpoint/item_reader.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/metadata_file.h"

namespace hyper_parallel {
namespace {

// Half of what the process may have open at most: it has other files.
size_t max_open_files() {
  constexpr rlim_t kMaxOpenFiles = 512;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxOpenFiles;
  return static_cast<size_t>(std::clamp<rlim_t>(limit.rlim_cur / 2, 1, kMaxOpenFiles));
}

}  // namespace

// Absolute, so that it stays the same place when the process changes its folder, as it may beside a save.
FileSystemReader::FileSystemReader(std::filesystem::path directory, int threads)
    : path_(directory.empty() ? std::move(directory) : std::filesystem::absolute(directory)), threads_(threads) {
  HP_CHECK(threads >= 1 && threads <= kMostReadThreads, kInvalidArgument, "threads is ", threads, ", but must be 1 to ",
           kMostReadThreads);
}

std::string FileSystemReader::read_metadata() {
  std::optional<std::string> text = read_metadata_file(Directory(path_));
  HP_CHECK(text.has_value(), kInvalidArgument, "there is no checkpoint in ", quoted_path(path_), ": it has no '",
           kMetadataFile, "'");
  return std::move(*text);
}

std::optional<FileDescriptor> FileSystemReader::open_data_file(const StoredFile& file) const {
  std::optional<FileDescriptor> opened = directory_->open_regular(file.name, O_RDONLY);
  if (!opened.has_value()) return std::nullopt;
  struct stat status{};
  const std::string path = quoted_path(path_ / file.name);
  HP_CHECK(::fstat(opened->get(), &status) == 0, kDataLoss, "cannot examine ", path, ": ", errno_text(errno));
  HP_CHECK(status.st_size == file.bytes, kDataLoss, "checkpoint file ", path, " has ", status.st_size,
           " bytes but the metadata says ", file.bytes);
  return opened;
}

void FileSystemReader::close() {
  files_.clear();
  directory_.reset();
}

bool FileSystemReader::open(const CheckpointMetadata& metadata, const LoadPlan& plan) {
  close();
  const size_t most = max_open_files();
  for (const int64_t file : files_of(metadata, plan)) {
    if (!directory_.has_value()) directory_.emplace(path_);
    std::optional<FileDescriptor> opened = open_data_file(metadata.files()[static_cast<size_t>(file)]);
    if (!opened.has_value()) return false;
    if (files_.size() < most) files_.emplace(file, std::move(*opened));
  }
  return true;
}

// Of a file that is not kept open each time anew: one that is held would be one too many.
ReadBytes FileSystemReader::reads(const StoredFile& file, int64_t number) const {
  const auto kept = files_.find(number);
  if (kept != files_.end()) return reads_from(kept->second.get());
  return [this, &file](int64_t begin, std::span<std::byte> into) {
    std::optional<FileDescriptor> opened;
    try {
      opened = open_data_file(file);
    } catch (const Error& error) {
      raise(error.code(), "cannot be read: ", error.what());
    }
    HP_CHECK(opened.has_value(), kDataLoss, "is not there: the file is gone");
    reads_from(opened->get())(begin, into);
  };
}

void FileSystemReader::read(const CheckpointMetadata& metadata, const LoadPlan& plan, LoadPlanner& planner,
                            Progress& progress) {
  const OpenFile open_file = [&](int64_t number) {
    if (!directory_.has_value()) directory_.emplace(path_);
    const StoredFile& file = metadata.files()[static_cast<size_t>(number)];
    return OpenedFile{reads(file, number), quoted_path(path_ / file.name)};
  };
  read_items(metadata, plan, planner, progress, open_file, threads_);
  close();
}

}  // namespace hyper_parallel
