#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/atomic_file.h"
#include "hyper_parallel/checkpoint/data_file.h"
#include "hyper_parallel/checkpoint/directory.h"
#include "hyper_parallel/checkpoint/file_system_writer.h"
#include "hyper_parallel/checkpoint/safetensors_writer.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/checkpoint_source.h"
#include "hyper_parallel/tools/convert_command.h"
#include "hyper_parallel/tools/huggingface_folder.h"
#include "hyper_parallel/tools/text_table.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kSlabBytes = int64_t{8} << 20;

/// Tensors of one shard.
using ModelShard = std::vector<const StoredTensor*>;

std::vector<ModelShard> plan_shards(const CheckpointMetadata& metadata, int64_t max_file_size) {
  std::vector<ModelShard> shards;
  int64_t filled = 0;
  for (const StoredTensor& tensor : metadata.tensors()) {
    if (shards.empty() || (filled > 0 && tensor.bytes() > max_file_size - filled)) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(&tensor);
    filled = checked_add(filled, tensor.bytes());
  }
  if (shards.empty()) shards.emplace_back();
  return shards;
}

std::string shard_name(size_t number, size_t count) {
  std::ostringstream name;
  name << "model-" << std::setfill('0') << std::setw(5) << number << "-of-" << std::setw(5) << count << ".safetensors";
  return std::move(name).str();
}

void check_values(const CheckpointMetadata& metadata, ValuePolicy policy) {
  if (policy == ValuePolicy::kDrop || metadata.values().empty()) return;
  raise(ErrorCode::kInvalidArgument, "IN holds ", count_text(std::ssize(metadata.values()), "value"),
        " beside tensors, ", quoted_name(metadata.values().front().name),
        " for one, and a Hugging Face folder holds tensors alone; --drop-values leaves them out");
}

/// A folder that is filled by this process alone, and emptied again if that fails.
class FreshFolder {
 public:
  explicit FreshFolder(const std::filesystem::path& path) : directory_(make(path)) {}
  ~FreshFolder() {
    for (const std::string& name : written_) directory_.remove(name);
  }
  FreshFolder(const FreshFolder&) = delete;
  FreshFolder& operator=(const FreshFolder&) = delete;

  std::filesystem::path add(std::string name) {
    written_.push_back(std::move(name));
    return directory_.path() / written_.back();
  }
  void keep() { written_.clear(); }

 private:
  static Directory make(const std::filesystem::path& path) {
    check_out_is_free(path);
    const bool is_there = ::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST;
    const int error = errno;
    HP_CHECK(is_there, kInvalidArgument, "cannot create directory ", quoted_path(path), ": ", errno_text(error));
    return Directory(path);
  }

  Directory directory_;
  std::vector<std::string> written_;
};

void write_shard(const ModelShard& shard, const std::filesystem::path& path, CheckpointSource& source,
                 SlabReader& slabs, Progress& progress) {
  std::vector<TensorSpec> specs;
  for (const StoredTensor* tensor : shard) {
    specs.push_back({tensor->name(), tensor->dtype(), tensor->shape().to_vector()});
  }
  SafetensorsWriter writer(path, arrange_tensors(std::move(specs), {{"format", "pt"}}));
  for (const TensorEntry& entry : writer.header().tensors()) {
    const StoredTensor& tensor = *source.metadata().find_tensor(entry.name);
    const Interval cells{0, checked_product(tensor.shape())};
    slabs.stream(tensor, cells, [&](Interval /*cells*/, std::span<const std::byte> bytes) {
      writer.append(entry.name, bytes);
      progress.advance(std::ssize(bytes));
    });
  }
  writer.commit();
}

void write_index(const std::vector<ModelShard>& shards, int64_t total, const std::filesystem::path& path) {
  std::map<std::string, std::string> weight_map;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const StoredTensor* tensor : shards[i]) weight_map[tensor->name()] = shard_name(i + 1, shards.size());
  }
  const Json document = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  const std::string text = document.dump(2) + "\n";
  AtomicFile file(path);
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

/// Copies the bytes of one tensor.
void copy_tensor(const HuggingfaceFolder::Tensor& tensor, DataFile& file, std::span<std::byte> buffer,
                 Progress& progress) {
  const int64_t size = tensor.entry->size_bytes();
  for (int64_t done = 0; done < size;) {
    const auto piece = buffer.first(static_cast<size_t>(std::min(size - done, std::ssize(buffer))));
    const int64_t begin = tensor.file->data_begin + tensor.entry->begin + done;
    read_exactly(tensor.file->file, begin, piece, tensor.file->source);
    file.append(piece);
    progress.advance(std::ssize(piece));
    done += std::ssize(piece);
  }
}

StoredTensor stored_tensor(const TensorEntry& entry) { return {entry.name, entry.dtype, Dims(entry.shape)}; }

/// Writes the one data file and says what is in it.
CheckpointParts write_data_file(const HuggingfaceFolder& folder, const std::filesystem::path& out,
                                const std::string& name, Progress& progress) {
  CheckpointParts parts;
  std::vector<const HuggingfaceFolder::Tensor*> tensors;  // that have cells
  std::vector<DataChunk> chunks;
  for (const auto& [tensor_name, tensor] : folder.tensors()) {
    parts.tensors.push_back(stored_tensor(*tensor.entry));
    if (tensor.entry->size_bytes() == 0) continue;
    tensors.push_back(&tensor);
    chunks.push_back({tensor_name, tensor.entry->dtype, Dims(tensor.entry->shape)});
  }
  if (chunks.empty()) return parts;
  DataFile file(out / name, chunks);
  std::vector<std::byte> buffer(kBlockBytes);
  for (const size_t chunk : file.order()) copy_tensor(*tensors[chunk], file, buffer, progress);
  const WrittenFile written = file.finish();
  parts.files = {{name, written.bytes}};
  auto chunk = written.chunks.begin();
  for (StoredTensor& tensor : parts.tensors) {
    if (tensor.bytes() == 0) continue;
    const std::string_view key = chunk->key == tensor.name() ? std::string_view() : chunk->key;
    tensor.add_chunk(whole_box(tensor.shape()), 0, chunk->begin, key, chunk->checksums);
    ++chunk;
  }
  return parts;
}

}  // namespace

void checkpoint_to_huggingface(const std::filesystem::path& in, const std::filesystem::path& out, int64_t max_file_size,
                               ValuePolicy values, Progress& progress) {
  CheckpointSource source(in);
  check_values(source.metadata(), values);
  const std::vector<ModelShard> shards = plan_shards(source.metadata(), max_file_size);
  const int64_t total = tensor_bytes(source.metadata());
  FreshFolder folder(out);
  SlabReader slabs(source, kSlabBytes);
  progress.start(total);
  for (size_t i = 0; i < shards.size(); ++i) {
    write_shard(shards[i], folder.add(shard_name(i + 1, shards.size())), source, slabs, progress);
  }
  write_index(shards, total, folder.add(std::string(kHuggingfaceIndex)));
  folder.keep();
  progress.finish();
}

void huggingface_to_checkpoint(const std::filesystem::path& in, const std::filesystem::path& out, Progress& progress) {
  const HuggingfaceFolder folder(in);
  int64_t total = 0;
  for (const auto& [name, tensor] : folder.tensors()) total = checked_add(total, tensor.entry->size_bytes());
  FileSystemWriter writer(out);
  const std::string save_id = writer.begin();
  progress.start(total);
  CheckpointParts parts = write_data_file(folder, out, data_file_name(save_id, 0), progress);
  parts.save_id = save_id;
  writer.publish(CheckpointMetadata(std::move(parts)));
  progress.finish();
}

}  // namespace hyper_parallel
