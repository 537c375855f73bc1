#include "hyper_parallel/checkpoint/save_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string_view>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

namespace hyper_parallel {
namespace {

// Far more than unfinished saves can leave; a larger file is not ours.
constexpr size_t kMaxJournalBytes = size_t{1} << 20;

// NUL: what some file systems have in place of bytes that were on their way when the machine went down.
bool is_line_end(char c) { return c == '\n' || c == '\0'; }

bool is_journal(std::string_view text) {
  size_t length = 0;
  for (const char c : text) {
    const bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (!is_hex && !is_line_end(c)) return false;
    length = is_hex ? length + 1 : 0;
    if (length > 16) return false;
  }
  return true;
}

FileDescriptor open_lock(const Directory& directory) {
  std::optional<FileDescriptor> file = directory.open_regular(kSaveLockFile, O_RDWR | O_CREAT);
  HP_CHECK(file.has_value(), kFailedPrecondition, "cannot create ", quoted_path(directory.path() / kSaveLockFile),
           ": the directory is gone");
  return std::move(*file);
}

}  // namespace

SaveLock::SaveLock(const Directory& directory)
    : path_(directory.path() / kSaveLockFile), owner_(::getpid()), file_(open_lock(directory)) {
  const bool locked = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0;
  const int error = errno;
  HP_CHECK(locked || error != EWOULDBLOCK, kFailedPrecondition, "cannot save into ", quoted_path(directory.path()),
           ": another save is running there and holds '", kSaveLockFile, "'");
  HP_CHECK(locked, kFailedPrecondition, "cannot lock ", quoted_path(path_), ": ", errno_text(error));
  read();
}

// Explicitly: a child process that was forked meanwhile has the file open too, and would keep the lock. For the same
// reason a child that runs destructors must leave the lock to its parent.
SaveLock::~SaveLock() {
  if (file_.get() >= 0 && is_ours()) ::flock(file_.get(), LOCK_UN);
}

bool SaveLock::is_ours() const noexcept { return ::getpid() == owner_; }

void SaveLock::read() {
  text_.resize(kMaxJournalBytes + 1);
  const ReadOutcome outcome = read_all(file_.get(), 0, std::as_writable_bytes(std::span(text_)));
  HP_CHECK(outcome.error == 0, kDataLoss, "cannot read ", quoted_path(path_), ": ", errno_text(outcome.error));
  text_.resize(outcome.bytes);
  HP_CHECK(text_.size() <= kMaxJournalBytes && is_journal(text_), kFailedPrecondition, quoted_path(path_),
           " is not a list of save ids: it was not written by this library and is left alone");
  for (auto line = text_.begin(); line != text_.end();) {
    const auto end = std::find_if(line, text_.end(), is_line_end);
    if (is_save_id({line, end})) ids_.emplace_back(line, end);
    line = end == text_.end() ? end : end + 1;
  }
}

void SaveLock::add(std::span<const std::string> ids) {
  std::string lines = text_.empty() || text_.ends_with('\n') ? "" : "\n";
  for (const std::string& id : ids) lines += id + "\n";
  const auto end = static_cast<off_t>(text_.size());
  const bool placed = ::lseek(file_.get(), end, SEEK_SET) == end;
  const int seek_error = errno;
  HP_CHECK(placed, kDataLoss, "cannot write ", quoted_path(path_), ": ", errno_text(seek_error));
  write_all(file_.get(), std::as_bytes(std::span(lines)), path_);
  text_ += lines;
  const int error = flush_descriptor(file_.get());
  HP_CHECK(error == 0, kDataLoss, "cannot flush ", quoted_path(path_), ": ", errno_text(error));
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

bool SaveLock::clear() noexcept {
  if (::ftruncate(file_.get(), 0) != 0) return false;
  text_.clear();
  ids_.clear();
  return true;
}

}  // namespace hyper_parallel
