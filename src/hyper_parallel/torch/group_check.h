#pragma once

// HYPER_PARALLEL_CHECK=1: before a collective, the members of a group compare what each is about to do.
//
// Without the check a fault that only one rank can see (its split lists, its dtype) raises on that rank alone, and its
// peers wait for the group's timeout. With it every rank puts a short text under a key of the group's store, reads the
// texts of all others, and all ranks raise the same error at once. The check costs a store round trip per collective
// and reads O(group size) keys: it is for tests and for finding faults.
//
// State: each rank's running number is kept in the store itself, under the group's name, so that no process-wide
// registry exists. A rank deletes its own text two rounds later, when everybody must have read it; the store
// holds a bounded number of keys.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel {

/// Whether HYPER_PARALLEL_CHECK is "1", read at each call. Unset, "" and "0" mean no; anything else is
/// kInvalidArgument.
bool check_enabled();

enum class CheckSetting { kOff, kOn };

/// Sets HYPER_PARALLEL_CHECK for its own lifetime, for tests. Construct it before the threads that read it start.
class ScopedCheckSetting {
 public:
  explicit ScopedCheckSetting(CheckSetting setting);
  ~ScopedCheckSetting();
  ScopedCheckSetting(const ScopedCheckSetting&) = delete;
  ScopedCheckSetting& operator=(const ScopedCheckSetting&) = delete;

 private:
  std::optional<std::string> previous_;
};

/// The time one operation of the group may take: its backend's timeout, or its store's if the backend tells none.
std::chrono::milliseconds group_timeout(c10d::ProcessGroup& group);

/// Who compares: all members of a group, or some of them (group-relative ranks, the same list in the same order on
/// each).
struct Participants {
  Participants(c10d::ProcessGroup& of_group) : group(of_group) {}
  Participants(c10d::ProcessGroup& of_group, std::vector<int64_t> some) : group(of_group), members(std::move(some)) {}

  c10d::ProcessGroup& group;
  std::vector<int64_t> members;  // empty: all
};

/// What one rank tells the others before a collective.
struct RankReport {
  /// Must be equal on all ranks.
  std::string digest;
  /// Handed to all ranks uncompared, for rules between ranks.
  std::string detail;
};

/// Compares this rank's operation and digest with every other rank's, whether or not the check is enabled; a collective
/// that every participant must call. Returns each participant's `detail` in order.
///
/// With `fault`, this rank has found an error of its own: it tells the others, and the caller then throws that error.
/// Throws kFailedPrecondition, with the same text on all ranks, when operations or digests differ (naming the ranks on
/// each side and what they said) or another rank reported a fault (naming the rank and the fault); and when a rank did
/// not come within the group's timeout (naming it), or the group has no store.
std::vector<std::string> agree(const Participants& participants, std::string_view operation, const RankReport& report,
                               const std::optional<std::string>& fault = std::nullopt);

/// The same for a digest alone.
void agree(const Participants& participants, std::string_view operation, std::string_view digest,
           const std::optional<std::string>& fault = std::nullopt);

/// Validates this rank's arguments of a collective. `validate` throws if they are wrong. If the check is off that is
/// all, and the result is empty. If it is on, a fault of any rank raises on all of them, the faulty rank throwing its
/// own error, and `report` (called after `validate` passed) is compared by `agree`, whose result is returned.
std::vector<std::string> validate_together(const Participants& participants, std::string_view operation,
                                           const std::function<void()>& validate,
                                           const std::function<RankReport()>& report);

}  // namespace hyper_parallel
