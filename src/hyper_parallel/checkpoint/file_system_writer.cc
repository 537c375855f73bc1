#include "hyper_parallel/checkpoint/file_system_writer.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/data_file.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/publication.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

std::vector<DataChunk> data_chunks(const std::vector<WriteItem>& items) {
  std::vector<DataChunk> chunks;
  chunks.reserve(items.size());
  for (const WriteItem& item : items) chunks.push_back({item.tensor->name, item.tensor->dtype, item.extent().sizes});
  return chunks;
}

void append_item(DataFile& file, const WriteItem& item, SavePlanner& planner, Progress& progress) {
  const HeldBytes data = checked_data(planner, item);
  const auto count = static_cast<int64_t>(data.bytes.size());
  for (int64_t done = 0; done < count;) {
    const int64_t piece = std::min(count - done, kBlockBytes);
    file.append(data.bytes.subspan(static_cast<size_t>(done), static_cast<size_t>(piece)));
    progress.advance(piece);
    done += piece;
  }
}

// The tensors of the plan with their chunks in file 0, in the plan's order.
std::vector<StoredTensor> stored_tensors(const SavePlan& plan, const WrittenFile& file) {
  std::vector<StoredTensor> tensors;
  size_t next = 0;
  for (const PlannedTensor& planned : plan.tensors) {
    if (planned.boxes.empty()) continue;
    StoredTensor tensor(planned.name, planned.dtype, planned.shape);
    tensor.reserve(static_cast<int64_t>(planned.boxes.size()));
    for (const Box& box : planned.boxes) {
      const WrittenChunk& chunk = file.chunks[next++];
      tensor.add_chunk(box, 0, chunk.begin, chunk.key, chunk.checksums);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

// Absolute, so that it stays the same place when the process changes its folder, as it may beside a save.
FileSystemWriter::FileSystemWriter(std::filesystem::path directory)
    : directory_(directory.empty() ? std::move(directory) : std::filesystem::absolute(directory)) {}

FileSystemWriter::~FileSystemWriter() = default;

std::string FileSystemWriter::begin() {
  HP_CHECK(publication_ == nullptr, kFailedPrecondition, "cannot begin a save into ", quoted_path(directory_),
           ": this writer has begun one that is neither published nor abandoned");
  publication_ = std::make_unique<Publication>(directory_);
  return publication_->id();
}

CheckpointParts FileSystemWriter::write(const std::string& save_id, int64_t rank, const SavePlan& plan,
                                        SavePlanner& planner, Progress& progress) {
  HP_CHECK(is_save_id(save_id), kInvalidArgument, "save_id is ", quoted_name(save_id),
           ", but must be 16 lower-case hex digits");
  std::vector<WriteItem> items;
  int64_t total = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    for (size_t box = 0; box < tensor.boxes.size(); ++box) {
      items.push_back({&tensor, box});
      total = checked_add(total, items.back().bytes());
    }
  }
  CheckpointParts parts;
  parts.save_id = save_id;
  progress.start(total);
  if (!items.empty()) {
    DataFile file(directory_ / data_file_name(save_id, rank), data_chunks(items));
    for (const size_t item : file.order()) append_item(file, items[item], planner, progress);
    const WrittenFile written = file.finish();
    parts.files = {{data_file_name(save_id, rank), written.bytes}};
    parts.tensors = stored_tensors(plan, written);
  }
  progress.finish();
  return parts;
}

void FileSystemWriter::publish(const CheckpointMetadata& metadata) {
  HP_CHECK(publication_ != nullptr, kFailedPrecondition, "cannot publish into ", quoted_path(directory_),
           ": no save was begun");
  const std::unique_ptr<Publication> publication = std::move(publication_);
  publication->publish(metadata);
}

void FileSystemWriter::abandon() noexcept { publication_.reset(); }

std::string data_file_name(const std::string& save_id, int64_t rank) {
  std::ostringstream name;
  name << "data-" << save_id << "-" << std::setw(5) << std::setfill('0') << rank << ".safetensors";
  return std::move(name).str();
}

}  // namespace hyper_parallel
