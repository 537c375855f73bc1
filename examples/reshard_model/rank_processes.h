#pragma once

// One process per rank on this machine.

#include <filesystem>
#include <functional>

namespace hyper_parallel::examples {

/// A folder under the system's temporary one that goes with this object. Throws kFailedPrecondition if there is no
/// place for one.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct ProcessContext {
  int rank;
  int size;
  std::filesystem::path folder;  // fresh, shared by all ranks, removed at the end
};

/// Forks `size` processes that each run `body`, and waits for them. When one fails, its error is printed, the others
/// are ended, and the result is 1; else 0. SIGINT and SIGTERM end them all, with 128 + the signal's number. The caller
/// must not have started a thread.
int run_processes(int size, const std::function<void(const ProcessContext&)>& body);

}  // namespace hyper_parallel::examples
