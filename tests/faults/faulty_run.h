#pragma once

// Runs fault_saver and says how its two ranks ended.

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hyper_parallel {

/// What goes wrong: on which rank, at which of its calls (from 1), and how (see fault_shim.cc).
struct Fault {
  int64_t rank = 0;
  int64_t call = 0;
  std::string action;
};

struct RankEnd {
  std::string how;                 // "ok", "killed", "raised <error>"
  std::vector<std::string> calls;  // of the rank that the fault is for, unless it was killed

  bool raised() const { return how.starts_with("raised "); }
};

/// A save of `generation` into `directory`. `limit` is how long a rank waits for a message of the other. Throws
/// std::runtime_error if the saver has not ended after a minute.
std::array<RankEnd, 2> run_saver(const std::filesystem::path& directory, int64_t generation, const Fault& fault,
                                 std::chrono::milliseconds limit = std::chrono::seconds(10));

}  // namespace hyper_parallel
