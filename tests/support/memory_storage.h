#pragma once

// A storage in this process's memory, shared by ranks that are threads. It counts what it is asked for, and a test may
// hang a fault into every call.

#include <cstring>
#include <functional>
#include <iomanip>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/storage.h"
#include "tests/support/cells.h"

namespace hyper_parallel {

/// What all ranks' writers and readers have in common.
struct MemoryStorage {
  std::mutex mutex;
  std::map<std::string, std::string> files;
  std::string metadata;  // "": there is no checkpoint
  int begins = 0;
  int publishes = 0;
  int abandons = 0;
  std::vector<SavePlan> written;  // the plans that `write` was called with

  /// Called first thing, with the name of the method and the rank (the coordinator: 0).
  std::function<void(const std::string& method, int64_t rank)> before = [](const std::string&, int64_t) {};
};

class MemoryWriter final : public StorageWriter {
 public:
  explicit MemoryWriter(MemoryStorage& storage) : storage_(storage) {}

  std::string begin() override {
    storage_.before("begin", 0);
    std::ostringstream id;
    id << std::setw(16) << std::setfill('0') << ++storage_.begins;
    return std::move(id).str();
  }

  CheckpointParts write(const std::string& save_id, int64_t rank, const SavePlan& plan, SavePlanner& planner,
                        Progress& progress) override {
    storage_.before("write", rank);
    CheckpointParts parts;
    std::string data;
    progress.start(0);
    for (const PlannedTensor& tensor : plan.tensors) {
      StoredTensor stored(tensor.name, tensor.dtype, tensor.shape);
      for (size_t box = 0; box < tensor.boxes.size(); ++box) {
        const HeldBytes held = planner.get_data({&tensor, box});
        stored.add_chunk(tensor.boxes[box], 0, static_cast<int64_t>(data.size()), "", block_checksums(held.bytes));
        data.append(reinterpret_cast<const char*>(held.bytes.data()), held.bytes.size());
        progress.advance(static_cast<int64_t>(held.bytes.size()));
      }
      if (stored.chunk_count() > 0) parts.tensors.push_back(std::move(stored));
    }
    progress.finish();
    const std::scoped_lock lock(storage_.mutex);
    storage_.written.push_back(plan);
    if (data.empty()) return parts;
    const std::string name = str_cat("data-", save_id, "-", rank);
    parts.files.push_back({name, static_cast<int64_t>(data.size())});
    storage_.files[name] = std::move(data);
    return parts;
  }

  void publish(const CheckpointMetadata& metadata) override {
    storage_.before("publish", 0);
    ++storage_.publishes;
    storage_.metadata = write_metadata(metadata);
  }

  void abandon() noexcept override { ++storage_.abandons; }

 private:
  MemoryStorage& storage_;
};

class MemoryReader final : public StorageReader {
 public:
  MemoryReader(MemoryStorage& storage, int64_t rank) : storage_(storage), rank_(rank) {}

  std::string read_metadata() override {
    storage_.before("read_metadata", rank_);
    HP_CHECK(!storage_.metadata.empty(), kInvalidArgument, "there is no checkpoint");
    return storage_.metadata;
  }

  bool open(const CheckpointMetadata& metadata, const LoadPlan& plan) override {
    storage_.before("open", rank_);
    const std::scoped_lock lock(storage_.mutex);
    for (const ReadItem& item : plan.items) {
      if (!storage_.files.contains(file_of_item(metadata, item))) return false;
    }
    return true;
  }

  void read(const CheckpointMetadata& metadata, const LoadPlan& plan, LoadPlanner& planner, Progress&) override {
    storage_.before("read", rank_);
    for (const ReadItem& item : plan.items) {
      const StoredTensor& tensor = metadata.tensors()[static_cast<size_t>(item.tensor)];
      const StoredChunk chunk = tensor.chunk(item.chunk);
      const char* const from = storage_.files.at(file_of_item(metadata, item)).data() + chunk.begin;
      const TargetView target = planner.acquire_tensor(plan, item);
      const std::vector<int64_t> sources = elements_of(view_in_chunk(item, chunk.box));
      const std::vector<int64_t> places = elements_of(target.view);
      const int64_t width = bits_per_element(tensor.dtype()) / 8;
      for (size_t i = 0; i < sources.size(); ++i) {
        std::memcpy(target.storage.data() + places.at(i) * width, from + sources[i] * width,
                    static_cast<size_t>(width));
      }
    }
  }

 private:
  static std::string file_of_item(const CheckpointMetadata& metadata, const ReadItem& item) {
    const StoredTensor& tensor = metadata.tensors()[static_cast<size_t>(item.tensor)];
    return metadata.files()[static_cast<size_t>(tensor.chunk(item.chunk).file)].name;
  }

  MemoryStorage& storage_;
  int64_t rank_;
};

}  // namespace hyper_parallel
