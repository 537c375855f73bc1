#pragma once

// `hyper-parallel verify DIR`: is every byte of a checkpoint what was saved?
//
//   * `.metadata` is there and valid; without that nothing else is looked at
//   * each data file is there, is a regular file, has its size, and is a valid safetensors file
//   * its header and the metadata agree on every chunk: key, dtype, sizes and bytes; neither knows of more
//   * each block of each chunk has its CRC32C
//
// All faults are found, not the first alone. Memory stays bounded by a block and the metadata.

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/tools/opened_checkpoint.h"

namespace hyper_parallel {

/// The most faults that are listed; further ones are counted.
inline constexpr int64_t kMaxListedFaults = 100;

struct CheckpointFault {
  std::string file;
  std::string tensor;   // empty where the fault is that of a whole file
  std::string message;  // one line
  friend bool operator==(const CheckpointFault&, const CheckpointFault&) = default;
};

struct VerifyReport {
  std::string save_id;
  int64_t files = 0;
  int64_t tensors = 0;
  int64_t chunks = 0;
  int64_t blocks = 0;  // that were read
  int64_t bytes = 0;   // of these
  int64_t fault_count = 0;
  std::vector<CheckpointFault> faults;   // the first kMaxListedFaults
  std::vector<std::string> unpublished;  // data files of saves that did not finish: no fault

  bool ok() const { return fault_count == 0; }
};

/// Reads all of the checkpoint, the one that was there when it was opened. Throws as Directory if the directory cannot
/// be opened, and kFailedPrecondition if `.metadata` cannot be, if newer saves replace the checkpoint again and again
/// (see OpenedCheckpoint), or if one has removed a file that was not among those kept open.
VerifyReport verify_checkpoint(const std::filesystem::path& directory, Progress& progress);
VerifyReport verify_checkpoint(OpenedCheckpoint opened, Progress& progress);

enum class VerifyFormat { kText, kJson };

/// Verifies and prints the report; true if the checkpoint has no fault. The JSON is one object: "checkpoint",
/// "save_id", "ok", "files", "tensors", "chunks", "blocks", "bytes", "fault_count", "faults" (each "file", "tensor",
/// "message"), "unpublished".
bool verify_checkpoint(const std::filesystem::path& directory, VerifyFormat format, std::ostream& out,
                       Progress& progress);

/// The two forms of a report (verify_report.cc).
void print_text(const std::filesystem::path& directory, const VerifyReport& report, std::ostream& out);
void print_json(const std::filesystem::path& directory, const VerifyReport& report, std::ostream& out);

}  // namespace hyper_parallel
