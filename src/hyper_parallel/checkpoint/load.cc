#include "hyper_parallel/checkpoint/load.h"

#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

// So often a load begins again because a newer save has replaced the checkpoint.
constexpr int kMostAttempts = 5;

// A rank's message of the second round: kOpen or kGone, then a character for each entry of the metadata, tensors before
// values: kWanted or kUnwanted.
constexpr char kOpen = 'o';
constexpr char kGone = 'g';
constexpr char kWanted = '1';
constexpr char kUnwanted = '0';

void check_values(const CheckpointMetadata& metadata, const LoadRequest& request) {
  std::vector<std::string_view> missing;
  for (const std::string& name : request.values) {
    if (metadata.find_value(name) != nullptr) continue;
    HP_CHECK(metadata.find_tensor(name) == nullptr, kInvalidArgument, quoted_name(name),
             " is stored as a tensor, but wanted as a value");
    if (!allows(request.options.allow_missing, name)) missing.push_back(name);
  }
  HP_CHECK(missing.empty(), kInvalidArgument, "the checkpoint does not hold ", name_list(missing),
           "; entries in allow_missing may be absent and stay as they are");
}

bool lies_in(const Box& part, const Box& whole) {
  return part.offsets.size() == whole.ndim() && part.sizes.size() == whole.ndim() && intersect(part, whole) == part;
}

// A planner may be anyone's: its numbers are not believed.
void check_plan(const CheckpointMetadata& metadata, const LoadPlan& plan) {
  const auto within = [](int64_t number, size_t count) { return number >= 0 && number < static_cast<int64_t>(count); };
  for (const ReadItem& item : plan.items) {
    bool fits = within(item.target, plan.targets.size()) && within(item.tensor, metadata.tensors().size());
    if (fits) {
      const LoadTarget& target = plan.targets[static_cast<size_t>(item.target)];
      const StoredTensor& stored = metadata.tensors()[static_cast<size_t>(item.tensor)];
      fits = target.shape == stored.shape() && within(item.box, target.boxes.size()) &&
             within(item.chunk, static_cast<size_t>(stored.chunk_count())) &&
             lies_in(item.overlap, stored.chunk_box(item.chunk)) &&
             lies_in(item.overlap, target.boxes[static_cast<size_t>(item.box)]);
    }
    HP_CHECK(fits, kInvalidArgument, "the load plan has an item (target ", item.target, ", box ", item.box, ", tensor ",
             item.tensor, ", chunk ", item.chunk, ", cells ", to_string(item.overlap),
             ") that does not lie in a chunk and in a wanted box");
  }
}

// The names of all entries, tensors before values.
std::vector<std::string_view> entry_names(const CheckpointMetadata& metadata) {
  std::vector<std::string_view> names;
  for (const StoredTensor& tensor : metadata.tensors()) names.push_back(tensor.name());
  for (const NamedValue& value : metadata.values()) names.push_back(value.name);
  return names;
}

std::string wanted_marks(const CheckpointMetadata& metadata, const LoadPlan& plan, const LoadRequest& request) {
  std::unordered_set<std::string_view> wanted(request.values.begin(), request.values.end());
  for (const LoadTarget& target : plan.targets) wanted.insert(target.name);
  std::string marks;
  for (const std::string_view name : entry_names(metadata)) marks += wanted.contains(name) ? kWanted : kUnwanted;
  return marks;
}

void check_all_wanted(const CheckpointMetadata& metadata, const std::vector<std::string>& messages,
                      const LoadOptions& options) {
  const std::vector<std::string_view> names = entry_names(metadata);
  std::vector<std::string_view> extra;
  for (size_t entry = 0; entry < names.size(); ++entry) {
    bool wanted = false;
    for (const std::string& message : messages) wanted = wanted || message.at(entry + 1) == kWanted;
    if (!wanted && !allows(options.allow_extra, names[entry])) extra.push_back(names[entry]);
  }
  HP_CHECK(extra.empty(), kInvalidArgument, "the checkpoint holds ", name_list(extra),
           ", which no rank loads; entries in allow_extra are left out");
}

// One attempt after the other, until all ranks have their files open.
class Loading {
 public:
  Loading(Exchange& exchange, LoadPlanner& planner, StorageReader& reader, const LoadRequest& request)
      : exchange_(exchange), planner_(planner), reader_(reader), request_(request) {}

  CheckpointMetadata run(Progress& progress) {
    for (int attempt = 1; !open(attempt); ++attempt) {
    }
    agree(exchange_, "reading the checkpoint", [&] {
      reader_.read(metadata_, plan_, planner_, progress);
      planner_.finish();
    });
    return std::move(metadata_);
  }

 private:
  bool open(int attempt) {
    const std::string text = announce(exchange_, "reading the metadata", [&] { return read_metadata(attempt); });
    const std::string answer = run_round(
        exchange_, "planning the load", [&] { return plan(text); },
        [&](const std::vector<std::string>& messages) { return coordinate(messages); });
    return answer == std::string(1, kOpen);
  }

  // On the coordinator.
  std::string read_metadata(int attempt) {
    std::string text = reader_.read_metadata();
    if (gone_on_) {
      HP_CHECK(text != previous_text_, kDataLoss, "a data file of the checkpoint is gone (missed by rank ", *gone_on_,
               "), and no newer save has replaced the checkpoint");
      HP_CHECK(attempt <= kMostAttempts, kFailedPrecondition, "the checkpoint was replaced by a newer save ",
               kMostAttempts, " times while it was being opened; load it when no save is running");
    }
    metadata_ = parse(text);
    previous_text_ = text;
    return text;
  }

  static CheckpointMetadata parse(const std::string& text) {
    return parse_metadata(std::as_bytes(std::span(text)), kMetadataFile);
  }

  std::string plan(const std::string& text) {
    if (!exchange_.is_coordinator()) metadata_ = parse(text);
    check_values(metadata_, request_);
    plan_ = planner_.build_local_plan(metadata_);
    check_plan(metadata_, plan_);
    const bool is_open = reader_.open(metadata_, plan_);
    return std::string(1, is_open ? kOpen : kGone) + wanted_marks(metadata_, plan_, request_);
  }

  std::vector<std::string> coordinate(const std::vector<std::string>& messages) {
    gone_on_.reset();
    for (size_t rank = 0; rank < messages.size() && !gone_on_; ++rank) {
      if (messages[rank].at(0) == kGone) gone_on_ = rank;
    }
    if (!gone_on_) check_all_wanted(metadata_, messages, request_.options);
    return std::vector<std::string>(messages.size(), std::string(1, gone_on_ ? kGone : kOpen));
  }

  Exchange& exchange_;
  LoadPlanner& planner_;
  StorageReader& reader_;
  const LoadRequest& request_;

  CheckpointMetadata metadata_;
  LoadPlan plan_;
  std::string previous_text_;      // on the coordinator
  std::optional<size_t> gone_on_;  // on the coordinator: a rank that missed a file in the latest attempt
};

}  // namespace

CheckpointMetadata load_checkpoint(Exchange& exchange, LoadPlanner& planner, StorageReader& reader,
                                   const LoadRequest& request, Progress& progress) {
  return Loading(exchange, planner, reader, request).run(progress);
}

}  // namespace hyper_parallel
