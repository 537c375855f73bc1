#include "hyper_parallel/checkpoint/save.h"

#include <unordered_set>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/byte_codec.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/parts_codec.h"
#include "hyper_parallel/checkpoint/written_parts.h"

namespace hyper_parallel {

// What a rank keeps of a save. The coordinator keeps the local plans of all: a rank whose plan is the same need not
// send it, even where another rank's has changed.
struct SavePlanCache::Entry {
  std::string save_id;  // of the save that made it: ranks and coordinator must speak of the same one
  std::string local;    // encoded, values left out
  SavePlan assigned;
  std::vector<std::string> all_local;  // on the coordinator
  Value structure;                     // on the coordinator
};

namespace {

// A rank's message.
enum class Offer : uint8_t { kPlan, kSamePlan };
// The coordinator's answer.
enum class Answer : uint8_t { kAssigned, kUseKept, kSendPlans };

template <typename Kind>
Kind read_kind(ByteReader& in, Kind last) {
  const uint8_t kind = in.read_byte();
  HP_CHECK(kind <= static_cast<uint8_t>(last), kInternal, "a message between the ranks of a save is of kind ",
           int{kind}, ", but the last kind is ", static_cast<int>(last));
  return static_cast<Kind>(kind);
}

Answer kind_of_answer(std::string_view bytes) {
  ByteReader in(bytes);
  return read_kind(in, Answer::kSendPlans);
}

// Abandons a save unless it is released: on the coordinator, elsewhere it does nothing.
class BegunSave {
 public:
  BegunSave() = default;
  BegunSave(const Exchange& exchange, StorageWriter& writer) : writer_(exchange.is_coordinator() ? &writer : nullptr) {}
  ~BegunSave() {
    if (writer_ != nullptr) writer_->abandon();
  }
  BegunSave(const BegunSave&) = delete;
  BegunSave& operator=(const BegunSave&) = delete;

  void begun(StorageWriter& writer) { writer_ = &writer; }
  void release() { writer_ = nullptr; }

 private:
  StorageWriter* writer_ = nullptr;
};

// The plan without its values, whose names stay.
std::string encode_without_values(SavePlan& plan) {
  std::vector<NamedValue> values = std::exchange(plan.values, {});
  for (const NamedValue& value : values) plan.values.push_back({value.name, Value()});
  std::string bytes = encode_save_plan(plan);
  plan.values = std::move(values);
  return bytes;
}

// A rank's message, read.
struct Message {
  Offer offer = Offer::kPlan;
  bool may_keep = false;
  std::string plan;  // kPlan: encoded without values; kSamePlan: the id of the save whose plan it is
  std::vector<NamedValue> values;
};

std::string encode_message(const Message& message) {
  ByteWriter out;
  out.write_byte(static_cast<uint8_t>(message.offer));
  out.write_byte(message.may_keep ? 1 : 0);
  out.write_string(message.plan);
  write_named_values(out, message.values);
  return out.take();
}

Message decode_message(std::string_view bytes) {
  ByteReader in(bytes);
  Message message;
  message.offer = read_kind(in, Offer::kSamePlan);
  message.may_keep = in.read_byte() != 0;
  message.plan = in.read_string();
  message.values = read_named_values(in);
  in.finish();
  return message;
}

// Throws, before anything is written, if the metadata could not be: a text that is none, a structure that names an
// entry that is not there. Tensors stand in it by name alone.
void check_writable(const std::vector<SavePlan>& assigned, const std::vector<NamedValue>& values,
                    const Value& structure) {
  CheckpointParts parts{std::string(16, '0'), {}, {}, values, structure};
  std::unordered_set<std::string_view> names;
  for (const SavePlan& plan : assigned) {
    for (const PlannedTensor& tensor : plan.tensors) {
      if (names.insert(tensor.name).second) parts.tensors.emplace_back(tensor.name, DType::kU8, Dims{0});
    }
  }
  write_metadata(CheckpointMetadata(std::move(parts)));
}

}  // namespace

// One run of `prepare_save`. On the coordinator `coordinate` works on what `gather`ed messages say.
class SavePreparation {
 public:
  SavePreparation(Exchange& exchange, SavePlanner& planner, StorageWriter& writer, SavePlanCache* cache)
      : exchange_(exchange), planner_(planner), writer_(writer), cache_(cache) {}

  PreparedSave run() {
    std::string answer = round(true);
    if (kind_of_answer(answer) == Answer::kSendPlans) answer = round(false);
    PreparedSave save = take_answer(answer);
    begun_.release();
    return save;
  }

 private:
  std::string round(bool may_refer_to_kept) {
    return run_round(
        exchange_, "planning the save", [&] { return offer(may_refer_to_kept); },
        [&](const std::vector<std::string>& messages) { return coordinate(messages); });
  }

  std::string offer(bool may_refer_to_kept) {
    if (may_refer_to_kept) plan_ = planner_.build_local_plan();
    local_ = encode_without_values(plan_);
    const bool may_keep = cache_ != nullptr && planner_.may_cache_plan();
    const bool is_kept = may_keep && cache_->entry_ != nullptr && cache_->entry_->local == local_;
    if (may_refer_to_kept && is_kept) {
      return encode_message({Offer::kSamePlan, may_keep, cache_->entry_->save_id, plan_.values});
    }
    return encode_message({Offer::kPlan, may_keep, local_, plan_.values});
  }

  std::vector<std::string> coordinate(const std::vector<std::string>& bytes) {
    std::vector<Message> messages;
    bool keep = true;
    bool all_same = true;
    for (const std::string& message : bytes) {
      messages.push_back(decode_message(message));
      keep = keep && messages.back().may_keep;
      all_same = all_same && messages.back().offer == Offer::kSamePlan;
    }
    if (!find_kept(messages)) {
      return std::vector<std::string>(bytes.size(), std::string(1, static_cast<char>(Answer::kSendPlans)));
    }
    return all_same ? use_kept(std::move(messages)) : assign(std::move(messages), keep);
  }

  // Puts the kept plans in the place of references to them; false if one is not there.
  bool find_kept(std::vector<Message>& messages) const {
    const auto* kept = cache_ == nullptr ? nullptr : cache_->entry_.get();
    for (size_t rank = 0; rank < messages.size(); ++rank) {
      if (messages[rank].offer == Offer::kPlan) continue;
      if (kept == nullptr || kept->save_id != messages[rank].plan || kept->all_local.size() != messages.size()) {
        return false;
      }
      messages[rank].plan = kept->all_local[rank];
    }
    return true;
  }

  std::vector<std::string> use_kept(std::vector<Message> messages) {
    std::vector<SavePlan> plans(messages.size());
    for (size_t rank = 0; rank < messages.size(); ++rank) plans[rank].values = std::move(messages[rank].values);
    values_ = unite_values(plans);
    structure_ = cache_->entry_->structure;
    check_writable({}, values_, Value());  // tensors and structure are those of last time
    ByteWriter out;
    out.write_byte(static_cast<uint8_t>(Answer::kUseKept));
    out.write_string(begin());
    return std::vector<std::string>(messages.size(), out.take());
  }

  std::vector<std::string> assign(std::vector<Message> messages, bool keep) {
    std::vector<SavePlan> plans;
    for (Message& message : messages) {
      plans.push_back(decode_save_plan(message.plan));
      plans.back().values = std::move(message.values);
      all_local_.push_back(std::move(message.plan));
    }
    GlobalSavePlan global = planner_.build_global_plan(plans);
    HP_CHECK(global.assigned.size() == plans.size(), kInvalidArgument, "build_global_plan gave work to ",
             global.assigned.size(), " ranks of ", plans.size(), "; it must give a plan for each");
    // A planner that makes values of its own must be asked each time.
    if (keep) keep = global.values == unite_values(plans);
    values_ = std::move(global.values);
    structure_ = std::move(global.structure);
    check_writable(global.assigned, values_, structure_);
    std::vector<std::string> shares;
    for (const SavePlan& share : global.assigned) shares.push_back(encode_save_plan(share));
    return answers_with(shares, keep);
  }

  std::vector<std::string> answers_with(const std::vector<std::string>& shares, bool keep) {
    const std::string save_id = begin();
    std::vector<std::string> answers;
    for (const std::string& share : shares) {
      ByteWriter out;
      out.write_byte(static_cast<uint8_t>(Answer::kAssigned));
      out.write_string(save_id);
      out.write_byte(keep ? 1 : 0);
      out.write_string(share);
      answers.push_back(out.take());
    }
    return answers;
  }

  std::string begin() {
    std::string save_id = writer_.begin();
    begun_.begun(writer_);
    return save_id;
  }

  PreparedSave take_answer(std::string_view bytes) {
    ByteReader in(bytes);
    const auto answer = read_kind(in, Answer::kSendPlans);
    HP_DCHECK(answer == Answer::kAssigned || answer == Answer::kUseKept);
    PreparedSave save;
    save.save_id = in.read_string();
    if (answer == Answer::kUseKept) {
      save.assigned = cache_->entry_->assigned;
      ++cache_->hits_;
    } else {
      const bool keep = in.read_byte() != 0;
      save.assigned = decode_save_plan(in.read_view());
      if (cache_ != nullptr) cache_->entry_ = keep ? kept_entry(save) : nullptr;
    }
    in.finish();
    save.values = std::move(values_);
    save.structure = std::move(structure_);
    return save;
  }

  std::unique_ptr<SavePlanCache::Entry> kept_entry(const PreparedSave& save) {
    return std::make_unique<SavePlanCache::Entry>(
        SavePlanCache::Entry{save.save_id, std::move(local_), save.assigned, std::move(all_local_), structure_});
  }

  Exchange& exchange_;
  SavePlanner& planner_;
  StorageWriter& writer_;
  SavePlanCache* cache_;

  SavePlan plan_;      // this rank's
  std::string local_;  // it, encoded without values
  // On the coordinator.
  BegunSave begun_;
  std::vector<std::string> all_local_;
  std::vector<NamedValue> values_;
  Value structure_;
};

SavePlanCache::SavePlanCache() = default;
SavePlanCache::~SavePlanCache() = default;

PreparedSave prepare_save(Exchange& exchange, SavePlanner& planner, StorageWriter& writer, SavePlanCache* cache) {
  return SavePreparation(exchange, planner, writer, cache).run();
}

void complete_save(Exchange& exchange, const PreparedSave& save, SavePlanner& data, StorageWriter& writer,
                   Progress& progress) {
  BegunSave begun(exchange, writer);
  const auto write = [&] {
    CheckpointParts parts = writer.write(save.save_id, exchange.rank(), save.assigned, data, progress);
    return encode_parts(checked_parts(std::move(parts), save.assigned));
  };
  const auto publish = [&](const std::vector<std::string>& messages) {
    std::vector<CheckpointParts> parts;
    for (const std::string& message : messages) parts.push_back(decode_parts(message));
    CheckpointParts all = unite_parts(std::move(parts));
    all.save_id = save.save_id;
    all.values = save.values;
    all.structure = save.structure;
    const CheckpointMetadata metadata(std::move(all));
    begun.release();  // from here on `publish` answers for what it leaves
    writer.publish(metadata);
    return std::vector<std::string>(messages.size());
  };
  run_round(exchange, "writing the checkpoint", write, publish);
}

void save_checkpoint(Exchange& exchange, SavePlanner& planner, StorageWriter& writer, Progress& progress,
                     SavePlanCache* cache) {
  const PreparedSave save = prepare_save(exchange, planner, writer, cache);
  complete_save(exchange, save, planner, writer, progress);
}

}  // namespace hyper_parallel
