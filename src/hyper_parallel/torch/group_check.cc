#include "hyper_parallel/torch/group_check.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

constexpr const char* kVariable = "HYPER_PARALLEL_CHECK";

/// What one rank published.
struct Statement {
  std::string operation;
  std::string digest;
  std::string detail;
  std::optional<std::string> fault;
};

/// In the participants' order, each with the rank that made it.
using Statements = std::vector<std::pair<int64_t, Statement>>;

/// "<length>:<text>" per field, so that no text can pass for two.
std::string encode(const Statement& statement) {
  std::string text = statement.fault ? "1" : "0";
  for (const std::string& field :
       {statement.operation, statement.digest, statement.detail, statement.fault.value_or("")}) {
    text += str_cat(field.size(), ":", field);
  }
  return text;
}

std::string take_field(std::string_view& text) {
  const size_t colon = text.find(':');
  HP_CHECK(colon != std::string_view::npos, kFailedPrecondition, "the group check read a text that no rank wrote");
  const size_t length = static_cast<size_t>(std::stoull(std::string(text.substr(0, colon))));
  std::string field(text.substr(colon + 1, length));
  text.remove_prefix(colon + 1 + field.size());
  return field;
}

Statement decode(std::string_view text) {
  HP_CHECK(!text.empty(), kFailedPrecondition, "the group check read an empty text");
  const bool has_fault = text.front() == '1';
  text.remove_prefix(1);
  Statement statement;
  statement.operation = take_field(text);
  statement.digest = take_field(text);
  statement.detail = take_field(text);
  std::string fault = take_field(text);
  if (has_fault) statement.fault = std::move(fault);
  return statement;
}

/// The group-relative ranks that take part.
std::vector<int64_t> ranks_of(const Participants& participants) {
  if (!participants.members.empty()) return participants.members;
  std::vector<int64_t> ranks(static_cast<size_t>(participants.group.getSize()));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return ranks;
}

/// The store keys of one group, or of some of its members.
class Keys {
 public:
  explicit Keys(const Participants& participants) {
    // A group without a backend has no name; its store alone then tells it apart.
    const std::string name = participants.group.hasBackends() ? participants.group.getGroupName() : "";
    prefix_ = str_cat("hyper_parallel/check/", name, "/", join(participants.members, ","), "/");
  }
  std::string counter(int64_t rank) const { return str_cat(prefix_, "rounds/", rank); }
  std::string statement(int64_t round, int64_t rank) const { return str_cat(prefix_, round, "/", rank); }

 private:
  std::string prefix_;
};

/// Runs a call on the store; its failures become kFailedPrecondition.
template <typename Call>
auto on_store(std::string_view operation, Call call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    raise(ErrorCode::kFailedPrecondition, operation, ": the group's store failed: ", error.what_without_backtrace());
  } catch (const std::exception& error) {
    raise(ErrorCode::kFailedPrecondition, operation, ": the group's store failed: ", error.what());
  }
}

/// Writes this rank's statement of the next round, removes its own of two rounds ago, and returns the round.
int64_t publish(c10d::Store& store, const Keys& keys, int rank, const Statement& statement) {
  const int64_t round = store.add(keys.counter(rank), 1);
  store.set(keys.statement(round, rank), encode(statement));
  if (round > 2) store.deleteKey(keys.statement(round - 2, rank));
  return round;
}

/// Waits for all keys; false if the timeout passed first.
bool wait_for(c10d::Store& store, const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  try {
    store.wait(keys, timeout);
    return true;
  } catch (const std::exception&) {
    return store.check(keys);
  }
}

[[noreturn]] void raise_absent(c10d::Store& store, std::string_view operation, const std::vector<std::string>& keys,
                               const std::vector<int64_t>& ranks, std::chrono::milliseconds timeout) {
  std::vector<int64_t> absent;
  on_store(operation, [&] {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!store.check({keys[i]})) absent.push_back(ranks[i]);
    }
  });
  raise(ErrorCode::kFailedPrecondition, operation, ": rank ", join(absent, ", "), " of ", keys.size(),
        " did not come within ", timeout.count(), " ms");
}

/// The statements of one round.
Statements read_all(const Participants& participants, const Keys& keys, int64_t round, std::string_view operation) {
  c10d::Store& store = *participants.group.getStore();
  const std::vector<int64_t> ranks = ranks_of(participants);
  std::vector<std::string> names;
  for (const int64_t rank : ranks) names.push_back(keys.statement(round, rank));
  const auto timeout = group_timeout(participants.group);
  const bool all_there = on_store(operation, [&] { return wait_for(store, names, timeout); });
  if (!all_there) raise_absent(store, operation, names, ranks, timeout);
  Statements statements;
  for (size_t i = 0; i < names.size(); ++i) {
    statements.emplace_back(ranks[i], decode(on_store(operation, [&] { return store.get_to_str(names[i]); })));
  }
  return statements;
}

/// Raises the same text on every rank if the texts are not all equal: "rank 0, 2: <text>; rank 1: <text>".
void check_equal(std::string_view operation, std::string_view what, const Statements& statements,
                 std::string Statement::* field) {
  std::map<std::string, std::vector<int64_t>> sides;
  for (const auto& [rank, statement] : statements) sides[statement.*field].push_back(rank);
  if (sides.size() == 1) return;
  std::map<int64_t, std::string> parts;  // by each side's first rank
  for (const auto& [text, ranks] : sides) parts[ranks.front()] = str_cat("rank ", join(ranks, ", "), ": ", text);
  std::vector<std::string> ordered;
  for (auto& [rank, part] : parts) ordered.push_back(std::move(part));
  raise(ErrorCode::kFailedPrecondition, operation, ": the ranks of the group disagree about ", what, ": ",
        join(ordered, "; "));
}

/// Raises if a rank reported a fault, naming every such rank.
void check_no_fault(std::string_view operation, const Statements& statements) {
  std::vector<std::string> faults;
  for (const auto& [rank, statement] : statements) {
    if (statement.fault) faults.push_back(str_cat("rank ", rank, ": ", *statement.fault));
  }
  HP_CHECK(faults.empty(), kFailedPrecondition, operation, ": refused on another rank: ", join(faults, "; "));
}

}  // namespace

bool check_enabled() {
  const char* value = std::getenv(kVariable);
  const std::string_view text = value == nullptr ? "" : value;
  HP_CHECK(text.empty() || text == "0" || text == "1", kInvalidArgument, kVariable, " is '", text,
           "' but must be 0 or 1");
  return text == "1";
}

ScopedCheckSetting::ScopedCheckSetting(CheckSetting setting) {
  if (const char* value = std::getenv(kVariable)) previous_ = value;
  setenv(kVariable, setting == CheckSetting::kOn ? "1" : "0", 1);
}

ScopedCheckSetting::~ScopedCheckSetting() {
  if (previous_) {
    setenv(kVariable, previous_->c_str(), 1);
  } else {
    unsetenv(kVariable);
  }
}

std::chrono::milliseconds group_timeout(c10d::ProcessGroup& group) {
  try {
    return group.getDefaultBackend()->getBackendOptions()->timeout;
  } catch (const c10::Error&) {
    // Backends need not have options, and a group need not have a default backend.
    const auto store = group.getStore();
    HP_CHECK(store, kFailedPrecondition, "the process group tells no timeout and has no store");
    return store->getTimeout();
  }
}

std::vector<std::string> agree(const Participants& participants, std::string_view operation, const RankReport& report,
                               const std::optional<std::string>& fault) {
  const auto store = participants.group.getStore();
  HP_CHECK(store, kFailedPrecondition, operation, ": ", kVariable, "=1 needs a process group with a store");
  const Keys keys(participants);
  const Statement own{std::string(operation), report.digest, report.detail, fault};
  const int64_t round = on_store(operation, [&] { return publish(*store, keys, participants.group.getRank(), own); });
  const Statements statements = read_all(participants, keys, round, operation);
  if (fault) return {};
  check_no_fault(operation, statements);
  check_equal(operation, "the operation", statements, &Statement::operation);
  check_equal(operation, "its arguments", statements, &Statement::digest);
  std::vector<std::string> details;
  for (const auto& [rank, statement] : statements) details.push_back(statement.detail);
  return details;
}

void agree(const Participants& participants, std::string_view operation, std::string_view digest,
           const std::optional<std::string>& fault) {
  agree(participants, operation, RankReport{std::string(digest), ""}, fault);
}

std::vector<std::string> validate_together(const Participants& participants, std::string_view operation,
                                           const std::function<void()>& validate,
                                           const std::function<RankReport()>& report) {
  if (!check_enabled()) {
    validate();
    return {};
  }
  try {
    validate();
  } catch (const Error& error) {
    try {
      agree(participants, operation, RankReport{}, error.what());
    } catch (const Error&) {
      // A peer that is missing too must not hide this rank's own error.
    }
    throw;
  }
  return agree(participants, operation, report());
}

}  // namespace hyper_parallel
