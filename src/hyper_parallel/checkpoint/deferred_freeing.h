#pragma once

// Removes files without waiting until the system has freed their pages and blocks, which takes it about a quarter of a
// second per GiB: a thread of its own does that.
//
// The names are gone when `remove` returns, and with the process everything is freed. What keeps a file's bytes until
// then is a mapping of one page that nobody may touch: unlike an open descriptor it counts against no limit of open
// files, and no child process inherits it.

#include <vector>

#include "hyper_parallel/checkpoint/directory.h"

namespace hyper_parallel {

class DeferredFreeing {
 public:
  DeferredFreeing() = default;
  DeferredFreeing(const DeferredFreeing&) = delete;
  DeferredFreeing& operator=(const DeferredFreeing&) = delete;
  /// Starts to free; where no thread can be had, frees.
  ~DeferredFreeing();

  /// As `Directory::remove`. Frees at once what is small, and what lies on a file system that is not known to keep the
  /// bytes of a removed file out of sight (NFS gives it another name).
  bool remove(const Directory& directory, const std::string& name) noexcept;

 private:
  std::vector<void*> pages_;
};

}  // namespace hyper_parallel
