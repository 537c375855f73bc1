#pragma once

// Distributed checkpoints of tensors: save, load, and save in the background.
//
//   Checkpointer checkpointer(std::make_shared<GroupExchange>(group));
//   StateDict state = {{"model.weight", weight}, {"step", Value(int64_t{12})}};
//   save(state, "run/step12", checkpointer);
//   ...
//   load(state, "run/step12", checkpointer);     // any layout, any number of ranks
//
// Every rank of the exchange (`group_exchange.h`; SingleExchange for one process) calls with its own part of the state:
// DTensors, plain tensors (equal names on several ranks are replicas of one tensor), and values. A fault on one rank
// raises on all. What is on disk, and what holds when a process dies, stands in checkpoint/file_system_writer.h.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "hyper_parallel/checkpoint/checkpointer.h"
#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel {

using StateEntry = std::variant<DTensor, at::Tensor, Value>;

/// Entries by flat name.
using StateDict = std::map<std::string, StateEntry>;

/// Writes the state into `directory`, which is created where it is missing (not its parent), and replaces the
/// checkpoint that is there. Returns when all is on the disk.
///
/// Throws on every rank: kInvalidArgument for a Partial DTensor, for ranks that disagree about a tensor, or if no rank
/// holds some of its cells; kType for a tensor that cannot be stored (TensorSavePlanner); kFailedPrecondition while
/// another save holds the directory; kDataLoss if the system fails. The old checkpoint still loads then.
void save(const StateDict& state, const std::filesystem::path& directory, Checkpointer& checkpointer);

/// The same behind the caller's back: returns when the bytes are copied.
std::shared_ptr<AsyncSave> async_save(const StateDict& state, const std::filesystem::path& directory,
                                      Checkpointer& checkpointer);

/// Fills the tensors of `state` in place and replaces its values. Throws on every rank, before anything is touched:
/// kInvalidArgument for a missing or an extra entry, an unlike shape or dtype, each unless `options` allows it by name;
/// kDataLoss, perhaps with some tensors filled, for stored bytes that do not have their checksum.
void load(StateDict& state, const std::filesystem::path& directory, Checkpointer& checkpointer,
          const LoadOptions& options = {});

}  // namespace hyper_parallel
