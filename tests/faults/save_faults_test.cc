// A save of two ranks in which one call to the file system goes wrong: each call, each rank, each way. Whatever happens
// the directory holds the old checkpoint or the new one, complete; the next save works and tidies up; and what belongs
// to others is still there.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "tests/faults/faulty_run.h"
#include "tests/faults/generation.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kOld = 1;
constexpr int64_t kNew = 2;
constexpr int64_t kNext = 3;

enum class Start { kOverCheckpoint, kNoDirectory };

// Files that are not a checkpoint's, by name, and what is in them.
const std::map<std::string, std::string>& foreign_files() {
  static const std::map<std::string, std::string> kFiles{
      {"notes.txt", "notes"},
      {"model.safetensors", "weights"},
      {"data-short.safetensors", "short"},
      {"data-0123456789abcdef-00000.safetensors", "another program's"},
      {".metadata.tmp-0123456789abcdef", "another program's"},
  };
  return kFiles;
}

// A directory as it is before the save, made afresh for every fault.
class Place {
 public:
  explicit Place(Start start) : start_(start) {
    if (start_ == Start::kNoDirectory) return;
    const fs::path original = folder_ / "original";
    SingleExchange alone;
    save_generation(alone, original, kOld);
    for (const auto& [name, text] : foreign_files()) write_file(original / name, text);
    fs::create_directory(original / "other");
    write_file(original / "other" / ".metadata", "other");
  }

  /// The checkpoint's directory; the one of earlier faults is gone.
  const fs::path& fresh() {
    fs::remove_all(folder_ / "run");
    fs::create_directory(folder_ / "run");
    if (start_ == Start::kOverCheckpoint) fs::copy(folder_ / "original", directory_, fs::copy_options::recursive);
    return directory_;
  }

  Start start() const { return start_; }

 private:
  Start start_;
  TemporaryFolder folder_;
  fs::path directory_ = fs::canonical(folder_.path()) / "run" / "checkpoint";
};

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  return names;
}

void expect_foreign_files(const fs::path& directory) {
  for (const auto& [name, text] : foreign_files()) {
    ASSERT_TRUE(fs::exists(directory / name)) << name;
    EXPECT_EQ(read_file(directory / name), text) << name;
  }
  EXPECT_EQ(read_file(directory / "other" / ".metadata"), "other");
}

// Nothing is there but the published checkpoint, the lock file with an empty journal, and what belongs to others.
void expect_tidy(const Place& place, const fs::path& directory) {
  FileSystemReader reader(directory);
  const std::string text = reader.read_metadata();
  const CheckpointMetadata metadata = parse_metadata(std::as_bytes(std::span(text)), "metadata");
  std::set<std::string> expected{".metadata", ".save.lock"};
  for (const StoredFile& file : metadata.files()) expected.insert(file.name);
  if (place.start() == Start::kOverCheckpoint) {
    for (const auto& [name, content] : foreign_files()) expected.insert(name);
    expected.insert("other");
    expect_foreign_files(directory);
  }
  EXPECT_EQ(names_in(directory), expected);
  EXPECT_EQ(read_file(directory / ".save.lock"), "");
}

// How a save must end: short and interrupted calls are ordinary, and once the new checkpoint is in place and flushed
// the save has succeeded, though it may not be able to tidy up. Every other fault raises.
enum class Outcome { kSucceeds, kRaises, kRankDies };

Outcome outcome_of(const Fault& fault, const std::vector<std::string>& calls) {
  if (fault.action.starts_with("kill")) return Outcome::kRankDies;
  if (fault.action == "short" || fault.action == "EINTR") return Outcome::kSucceeds;
  const auto flush = std::find(std::find(calls.begin(), calls.end(), "rename"), calls.end(), "fsync");
  const bool is_behind = fault.call > std::distance(calls.begin(), flush) + 1;
  return is_behind ? Outcome::kSucceeds : Outcome::kRaises;
}

void expect_outcome(const std::array<RankEnd, 2>& ends, const Fault& fault, Outcome outcome) {
  const auto faulty = static_cast<size_t>(fault.rank);
  switch (outcome) {
    case Outcome::kSucceeds:
      EXPECT_EQ(ends[0].how, "ok");
      EXPECT_EQ(ends[1].how, "ok");
      return;
    case Outcome::kRaises:
      EXPECT_TRUE(ends[0].raised()) << ends[0].how;
      EXPECT_EQ(ends[0].how, ends[1].how);
      return;
    case Outcome::kRankDies:
      EXPECT_EQ(ends[faulty].how, "killed");
      EXPECT_EQ(ends[1 - faulty].how, "raised rank " + std::to_string(fault.rank) + " is gone");
      return;
  }
}

void check_fault(Place& place, const Fault& fault, Outcome outcome) {
  const fs::path directory = place.fresh();
  const std::array<RankEnd, 2> ends = run_saver(directory, kNew, fault);
  expect_outcome(ends, fault, outcome);
  const int64_t before = place.start() == Start::kOverCheckpoint ? kOld : 0;
  const int64_t found = load_generation(directory);
  EXPECT_TRUE(found == before || found == kNew) << found;
  if (outcome == Outcome::kSucceeds) {
    EXPECT_EQ(found, kNew);
  }
  if (place.start() == Start::kOverCheckpoint) expect_foreign_files(directory);

  SingleExchange alone;
  save_generation(alone, directory, kNext);
  EXPECT_EQ(load_generation(directory), kNext);
  expect_tidy(place, directory);
}

// Some ways to go wrong are those of a few calls.
bool may_happen_to(const std::string& call, const std::string& action) {
  const bool is_write = call.find("write") != std::string::npos;
  if (action == "short" || action == "nothing") return is_write;
  return action != "EINTR" || is_write || call == "fsync";
}

// Counts the calls of a save that goes well, then lets each go wrong in this way.
void check_every_call(Start start, const std::string& action) {
  Place place(start);
  for (int64_t rank = 0; rank < 2; ++rank) {
    const std::array<RankEnd, 2> good = run_saver(place.fresh(), kNew, {rank, 0, ""});
    ASSERT_EQ(good[0].how, "ok");
    ASSERT_EQ(good[1].how, "ok");
    const std::vector<std::string>& calls = good[static_cast<size_t>(rank)].calls;
    ASSERT_GE(calls.size(), 5U) << "the shim has not seen the save";
    for (size_t call = 0; call < calls.size(); ++call) {
      if (!may_happen_to(calls[call], action)) continue;
      const Fault fault{rank, static_cast<int64_t>(call) + 1, action};
      SCOPED_TRACE("rank " + std::to_string(rank) + ", call " + std::to_string(fault.call) + ": " + calls[call]);
      check_fault(place, fault, outcome_of(fault, calls));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

class EveryCall : public ::testing::TestWithParam<std::tuple<Start, std::string>> {};

TEST_P(EveryCall, GoesWrong_OldOrNewCheckpointLoadsAndTheNextSaveTidiesUp) {
  check_every_call(std::get<0>(GetParam()), std::get<1>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(SaveFaults, EveryCall,
                         ::testing::Combine(::testing::Values(Start::kOverCheckpoint, Start::kNoDirectory),
                                            ::testing::Values("kill_before", "kill_after", "ENOSPC", "EIO", "EINTR",
                                                              "full", "short", "nothing")),
                         [](const auto& param_info) {
                           const std::string start = std::get<0>(param_info.param) == Start::kOverCheckpoint
                                                         ? "OverCheckpoint"
                                                         : "NoDirectory";
                           return start + "_" + std::get<1>(param_info.param);
                         });

TEST(SaveFaults, GoodSave_MakesTheCallsThatDurabilityNeeds) {
  Place place(Start::kOverCheckpoint);
  const std::array<RankEnd, 2> coordinator = run_saver(place.fresh(), kNew, {0, 0, ""});
  std::map<std::string, int> count;
  for (const std::string& call : coordinator[0].calls) ++count[call];
  EXPECT_EQ(count["fsync"], 7);  // directory, journal, data, directory, metadata, directory, directory
  EXPECT_EQ(count["rename"], 1);
  EXPECT_EQ(count["unlinkat"], 1);
  EXPECT_EQ(count["ftruncate"], 1);
  const std::vector<std::string> last(coordinator[0].calls.end() - 2, coordinator[0].calls.end());
  EXPECT_EQ(last, (std::vector<std::string>{"fsync", "ftruncate"}));  // the journal goes behind the flush
  const std::array<RankEnd, 2> other = run_saver(place.fresh(), kNew, {1, 0, ""});
  EXPECT_EQ(std::set<std::string>(other[1].calls.begin(), other[1].calls.end()),
            (std::set<std::string>{"open", "write", "fsync"}));
}

}  // namespace
}  // namespace hyper_parallel
