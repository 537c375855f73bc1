#include "hyper_parallel/checkpoint/publication.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/atomic_file.h"
#include "hyper_parallel/checkpoint/deferred_freeing.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/metadata_file.h"

namespace hyper_parallel {
namespace {

using Names = FileNames;

Names file_names(const CheckpointMetadata& metadata) {
  Names names;
  for (const StoredFile& file : metadata.files()) names.insert(file.name);
  return names;
}

ErrorCode create_fault_code(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return ErrorCode::kInvalidArgument;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kFailedPrecondition;
    default:
      return ErrorCode::kDataLoss;
  }
}

void flush_parent(const Directory& directory) {
  const int parent = ::openat(directory.descriptor(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int open_error = errno;
  if (parent < 0 && open_error == EACCES) return;  // a parent that we may only pass through: not ours to flush
  const int error = parent < 0 ? open_error : flush_directory(parent);
  if (parent >= 0) ::close(parent);
  HP_CHECK(error == 0, kDataLoss, "cannot flush the parent of ", quoted_path(directory.path()), ": ",
           errno_text(error));
}

Directory make_directory(const std::filesystem::path& path) {
  const bool created = ::mkdir(path.c_str(), 0777) == 0;
  const int error = errno;
  if (!created && error != EEXIST) {
    raise(create_fault_code(error), "cannot create directory ", quoted_path(path), ": ",
          error == ENOENT ? "its parent does not exist" : errno_text(error));
  }
  return Directory(path);
}

[[noreturn]] void refuse_to_replace(const std::string& path, std::string_view reason) {
  raise(ErrorCode::kFailedPrecondition, "cannot save over ", path,
        ", which cannot be read as a checkpoint of this library: ", reason,
        "; save into another directory, or remove it first");
}

// Throws unless what the directory publishes, if anything, is a checkpoint that this library may replace.
std::optional<ReplacedCheckpoint> read_replaced(const Directory& directory) {
  const std::string path = quoted_path(directory.path() / kMetadataFile);
  const auto status = directory.status(std::string(kMetadataFile));
  if (status.has_value() && !S_ISREG(status->st_mode)) {
    refuse_to_replace(path, S_ISLNK(status->st_mode) ? "it is a symbolic link" : "it is no regular file");
  }
  // A fault of the machine (no descriptors, I/O) is told as it is: the checkpoint may be in the best of health.
  const std::optional<std::string> text = read_metadata_file(directory);
  if (!text.has_value()) return std::nullopt;
  const auto bytes = std::as_bytes(std::span(*text));
  if (!looks_like_metadata(bytes)) refuse_to_replace(path, "it was written by another program");
  try {
    const CheckpointMetadata metadata = parse_metadata(bytes, path);
    return ReplacedCheckpoint{metadata.save_id(), file_names(metadata)};
  } catch (const Error& error) {
    refuse_to_replace(path, error.what());
  }
}

bool is_same_entry(const std::optional<struct stat>& a, const std::optional<struct stat>& b) {
  if (!a.has_value() || !b.has_value()) return a.has_value() == b.has_value();
  return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
         a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

// Removes what the saves with these ids wrote, but for `kept` names. Returns true if nothing of it is left.
bool remove_files_of(const Directory& directory, const Names& ids, const Names& kept) {
  DeferredFreeing freeing;
  bool all = true;
  for (const std::string& name : directory.names()) {
    const std::optional<std::string> id = save_id_of(name);
    if (id.has_value() && ids.contains(*id) && !kept.contains(name)) all = freeing.remove(directory, name) && all;
  }
  return all;
}

}  // namespace

Publication::Publication(const std::filesystem::path& path) : directory_(make_directory(path)) {
  lock();
  // Also behind a save that died: what it renamed must be durable before the files that it replaced may go.
  if (!replaced_.has_value()) flush_parent(directory_);
  directory_.flush();
  tidy();
  enter();
}

// Looks at the metadata before it creates the lock file, which has no place in other programs' directories, and again
// if another save published in between.
void Publication::lock() {
  const std::string name(kMetadataFile);
  const auto before = directory_.status(name);
  replaced_ = read_replaced(directory_);
  lock_.emplace(directory_);
  if (!is_same_entry(before, directory_.status(name))) replaced_ = read_replaced(directory_);
}

// Removes what dead saves left. What cannot be removed now stays in the journal.
void Publication::tidy() noexcept try {
  Names dead(lock_->ids().begin(), lock_->ids().end());
  if (replaced_.has_value()) dead.erase(replaced_->save_id);
  if (!dead.empty()) remove_files_of(directory_, dead, replaced_.has_value() ? replaced_->files : Names{});
} catch (const std::exception&) {
}

void Publication::enter() {
  std::vector<std::string> ids{id_};
  if (replaced_.has_value()) ids.push_back(replaced_->save_id);
  lock_->add(ids);
}

// The size too: a rank that wrote to another disk of the same path is found here, not by the first reader.
void Publication::check_files(const CheckpointMetadata& metadata) const {
  HP_CHECK(metadata.save_id() == id_, kInvalidArgument, "metadata has save_id '", metadata.save_id(),
           "', but the save that was begun is '", id_, "'");
  for (const StoredFile& file : metadata.files()) {
    const std::optional<struct stat> status = directory_.status(file.name);
    HP_CHECK(status.has_value(), kDataLoss, "data file ", quoted_path(directory_.path() / file.name),
             " was written but is not there: do all ranks share the directory?");
    HP_CHECK(S_ISREG(status->st_mode) && status->st_size == file.bytes, kDataLoss, "data file ",
             quoted_path(directory_.path() / file.name), " has ", status->st_size, " bytes, but ", file.bytes,
             " were written");
  }
}

void Publication::publish(const CheckpointMetadata& metadata) {
  check_files(metadata);
  const std::string text = write_metadata(metadata);
  // What follows goes by path, and must not reach a checkpoint that somebody has put there meanwhile.
  HP_CHECK(directory_.is_at_its_path(), kFailedPrecondition, quoted_path(directory_.path()),
           " is no longer the directory that the save began in: it was renamed or replaced meanwhile");
  directory_.flush();
  AtomicFile file(directory_.path() / kMetadataFile, id_);
  file.append(std::as_bytes(std::span(text)));
  try {
    file.commit();
  } catch (...) {
    in_place_ = file.is_in_place();
    throw;
  }
  in_place_ = true;
  remove_replaced(metadata);
}

// From here on the save has succeeded. Files that are not removed for sure keep their line in the journal.
void Publication::remove_replaced(const CheckpointMetadata& metadata) noexcept try {
  const Names kept = file_names(metadata);
  Names old(lock_->ids().begin(), lock_->ids().end());
  old.erase(id_);
  bool all = true;
  if (replaced_.has_value()) {
    DeferredFreeing freeing;
    for (const std::string& name : replaced_->files) {
      if (!kept.contains(name)) all = freeing.remove(directory_, name) && all;
    }
  }
  all = remove_files_of(directory_, old, kept) && all;
  if (!all) return;
  directory_.flush();  // or a crash could bring files back of which no line tells any more
  lock_->clear();
} catch (const std::exception&) {
}

// The journal keeps the id: a rank that has not heard of the fault may still be writing. A forked child has nothing to
// withdraw: the save is its parent's.
void Publication::withdraw() noexcept try {
  if (!in_place_ && lock_->is_ours()) remove_files_of(directory_, {id_}, {});
} catch (const std::exception&) {
}

}  // namespace hyper_parallel
