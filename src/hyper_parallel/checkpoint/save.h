#pragma once

// Saving, from plans to a published checkpoint, on any number of ranks: two rounds (`run_round`).
//
//   prepare   each rank plans; the coordinator unites the plans, then opens the storage    → each rank's share
//   complete  each rank writes its share; the coordinator unites what was written and publishes
//
// Every fault raises on all ranks. Before `publish` the storage is abandoned, `publish` itself cleans up; what the
// storage held before still loads.

#include <memory>
#include <string>

#include "hyper_parallel/checkpoint/exchange.h"
#include "hyper_parallel/checkpoint/planner.h"
#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/checkpoint/storage.h"

namespace hyper_parallel {

/// A save between its two halves: what this rank is to write.
struct PreparedSave {
  std::string save_id;
  SavePlan assigned;
  std::vector<NamedValue> values;  // on the coordinator
  Value structure;                 // on the coordinator
};

/// The plan of the last save, to be used again when every rank's plan is the same. Each rank compares its local plan in
/// full, and the coordinator is told so in one small message; it answers with the new save's id alone.
///
/// Values are no part of the plan: they are state, travel anew with each save and never come from here. A plan is kept
/// only if every rank has a cache and its planner says `may_cache_plan`. One object for each sequence of saves.
class SavePlanCache {
 public:
  SavePlanCache();
  ~SavePlanCache();
  /// How often a kept plan was used.
  int64_t hits() const { return hits_; }

 private:
  friend class SavePreparation;
  struct Entry;
  std::unique_ptr<Entry> entry_;
  int64_t hits_ = 0;
};

/// First half. `cache` may be null. Throws on all ranks alike.
PreparedSave prepare_save(Exchange& exchange, SavePlanner& planner, StorageWriter& writer, SavePlanCache* cache);

/// Second half. `data` answers `get_data` alone: the planner itself, or a snapshot of it. Throws on all ranks alike;
/// besides what planner and storage throw: kInternal if a rank's storage wrote other boxes than it was told to.
void complete_save(Exchange& exchange, const PreparedSave& save, SavePlanner& data, StorageWriter& writer,
                   Progress& progress);

/// Both halves.
void save_checkpoint(Exchange& exchange, SavePlanner& planner, StorageWriter& writer, Progress& progress,
                     SavePlanCache* cache = nullptr);

}  // namespace hyper_parallel
