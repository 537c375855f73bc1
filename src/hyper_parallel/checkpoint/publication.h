#pragma once

// Publication: a save into a directory as its coordinator sees it, from taking the lock to renaming the metadata into
// place. The rules are those of file_system_writer.h.
//
//   constructed   directory made, lock taken, dead saves tidied, this save's id and the replaced one's in the journal
//   publish       data files checked, directory flushed, metadata renamed into place and flushed; then old files go,
//                 the directory is flushed again and the journal emptied
//   destroyed     without a rename: this save's files go. In every case: the lock is let go

#include <filesystem>
#include <optional>
#include <string>
#include <unordered_set>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/directory.h"
#include "hyper_parallel/checkpoint/save_id.h"
#include "hyper_parallel/checkpoint/save_lock.h"

namespace hyper_parallel {

using FileNames = std::unordered_set<std::string>;

/// What a directory published when the save began, as far as it is needed to tidy up behind it.
struct ReplacedCheckpoint {
  std::string save_id;
  FileNames files;
};

class Publication {
 public:
  /// Throws as FileSystemWriter::begin does.
  explicit Publication(const std::filesystem::path& path);
  ~Publication() { withdraw(); }
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

  const std::string& id() const { return id_; }

  /// Throws as FileSystemWriter::publish does.
  void publish(const CheckpointMetadata& metadata);

 private:
  void lock();
  void tidy() noexcept;
  void enter();
  void check_files(const CheckpointMetadata& metadata) const;
  void remove_replaced(const CheckpointMetadata& metadata) noexcept;
  void withdraw() noexcept;

  Directory directory_;
  std::optional<ReplacedCheckpoint> replaced_;
  std::optional<SaveLock> lock_;
  std::string id_ = new_save_id();
  bool in_place_ = false;  // the metadata names, or may name, this save's files: they are no longer ours to remove
};

}  // namespace hyper_parallel
