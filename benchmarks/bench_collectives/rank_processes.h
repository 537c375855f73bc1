#pragma once

// Processes that form one group on this machine, of which this one is rank 0.

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <vector>

namespace hyper_parallel::benchmarks {

class RankProcesses {
 public:
  /// What a rank runs; it meets the others at a file store of this path.
  using Body = std::function<void(int rank, const std::filesystem::path& store)>;

  /// Makes a temporary folder for the store. Throws kFailedPrecondition where that fails.
  RankProcesses();
  /// Ends the ranks that still run, and removes the folder.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// Runs `body` in `size` processes, as rank 0 in this one, which must not have started a thread. A failing rank
  /// prints its error; rank 0 then raises, as its peers' connections close. Throws what `body` throws here,
  /// kFailedPrecondition if another rank failed or could not be started.
  void run(int size, const Body& body);

 private:
  std::filesystem::path folder_;
  std::vector<pid_t> running_;
};

}  // namespace hyper_parallel::benchmarks
