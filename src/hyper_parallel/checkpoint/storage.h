#pragma once

// The storages' roles: where a checkpoint's bytes go and come from.

#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/planner.h"
#include "hyper_parallel/checkpoint/progress.h"

namespace hyper_parallel {

class StorageWriter {
 public:
  virtual ~StorageWriter() = default;

  /// On the coordinator, before any rank writes: takes the place for itself and gives the save an id.
  virtual std::string begin() = 0;
  /// On every rank: writes the plan's boxes durably. Returns what was written: files and tensors with the chunks of
  /// this rank; values and structure are left empty.
  virtual CheckpointParts write(const std::string& save_id, int64_t rank, const SavePlan& plan, SavePlanner& planner,
                                Progress& progress) = 0;
  /// On the coordinator, after all ranks have written: makes the checkpoint the one that readers see. Ends the save,
  /// also by throwing: it cleans up after itself, since it alone knows whether readers see the checkpoint already, and
  /// `abandon` is not called after it.
  virtual void publish(const CheckpointMetadata& metadata) = 0;
  /// On the coordinator, instead of `publish`, after a fault on any rank: removes what this save wrote. Throws nothing.
  virtual void abandon() noexcept = 0;
};

class StorageReader {
 public:
  virtual ~StorageReader() = default;

  /// The text of the metadata, as `parse_metadata` reads it; on the coordinator. Throws kInvalidArgument if there is no
  /// checkpoint.
  virtual std::string read_metadata() = 0;
  /// On every rank: gets hold of the files that the plan reads, so that a later save cannot take them away. Returns
  /// false if one is gone, as when a newer save has replaced the checkpoint.
  virtual bool open(const CheckpointMetadata& metadata, const LoadPlan& plan) = 0;
  /// Reads, verifies and delivers every item. Throws kDataLoss for bytes that do not have their checksum.
  virtual void read(const CheckpointMetadata& metadata, const LoadPlan& plan, LoadPlanner& planner,
                    Progress& progress) = 0;
};

}  // namespace hyper_parallel
