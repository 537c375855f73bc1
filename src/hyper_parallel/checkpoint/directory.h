#pragma once

// An open directory whose entries are reached by name alone: no path leads out of it, no symbolic link is followed.

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/file_descriptor.h"

namespace hyper_parallel {

class Directory {
 public:
  /// Throws as `open_file` does.
  explicit Directory(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_.get(); }

  /// Whether its path still leads to it: false after another has taken its place, or it has gone.
  bool is_at_its_path() const;

  /// The regular file of that name, opened with `flags` of open(2), or nothing if there is none. Throws kDataLoss if
  /// something else is there (a symbolic link, a pipe), otherwise as `open_file` does.
  std::optional<FileDescriptor> open_regular(const std::string& name, int flags) const;

  /// What lstat(2) says of the entry, or nothing if there is none. Throws kDataLoss if the system cannot say.
  std::optional<struct stat> status(const std::string& name) const;

  /// The names of all entries, in no order. Throws kDataLoss if they cannot be read.
  std::vector<std::string> names() const;

  /// Makes what was created, renamed and removed in it durable. Throws kDataLoss if the system cannot.
  void flush() const;

  /// Removes a file or symbolic link. Returns true if nothing of that name is left.
  bool remove(const std::string& name) const noexcept;

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;
};

}  // namespace hyper_parallel
