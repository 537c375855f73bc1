#include "hyper_parallel/checkpoint/data_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/safetensors_codec.h"
#include "hyper_parallel/checkpoint/safetensors_header.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

constexpr std::string_view kReservedName = "__metadata__";

// Large enough that the disk works in long runs, small against what a flush at the end would have to wait for.
constexpr int64_t kWriteBackBytes = int64_t{8} << 20;

}  // namespace

std::vector<std::string> assign_tensor_keys(std::span<const std::string> tensors) {
  std::unordered_map<std::string_view, int64_t> chunks_of;
  for (const std::string& tensor : tensors) ++chunks_of[tensor];
  std::unordered_map<std::string_view, int64_t> next_number;
  std::vector<std::string> keys;
  keys.reserve(tensors.size());
  for (const std::string& tensor : tensors) {
    if (chunks_of[tensor] == 1 && tensor != kReservedName) {
      keys.push_back(tensor);
      continue;
    }
    // Two numbered keys are equal only for one name and one number, so other tensors' names are all there is to avoid.
    int64_t& number = next_number[tensor];
    std::string key;
    do {
      key = str_cat(tensor, ".__dcp_chunk_", number++);
    } while (chunks_of.contains(key));
    keys.push_back(std::move(key));
  }
  return keys;
}

DataFile::DataFile(std::filesystem::path path, std::span<const DataChunk> chunks) : path_(std::move(path)) {
  arrange(chunks);
  // O_EXCL: neither a file nor a symbolic link of that name is ours to write.
  file_ = open_file(path_, O_WRONLY | O_CREAT | O_EXCL, 0666, "cannot create");
  try {
    write_all(file_->get(), std::as_bytes(std::span(header_)), path_);
    position_ = static_cast<int64_t>(header_.size());
  } catch (...) {
    ::unlink(path_.c_str());  // the destructor does not run
    throw;
  }
}

DataFile::~DataFile() {
  if (file_.has_value()) ::unlink(path_.c_str());
}

void DataFile::arrange(std::span<const DataChunk> chunks) {
  std::vector<std::string> names;
  names.reserve(chunks.size());
  for (const DataChunk& chunk : chunks) names.push_back(chunk.tensor);
  const std::vector<std::string> keys = assign_tensor_keys(names);

  std::vector<TensorSpec> specs;
  specs.reserve(chunks.size());
  std::unordered_map<std::string_view, size_t> chunk_of;
  for (size_t i = 0; i < chunks.size(); ++i) {
    specs.push_back({keys[i], chunks[i].dtype, chunks[i].sizes.to_vector()});
    chunk_of.emplace(keys[i], i);
  }
  const SafetensorsHeader header = arrange_tensors(std::move(specs));
  header_ = write_safetensors_header(header);

  const auto data_begin = static_cast<int64_t>(header_.size());
  written_.bytes = data_begin + header.data_size();
  written_.chunks.resize(chunks.size());
  for (const TensorEntry& entry : header.tensors()) {
    const size_t chunk = chunk_of.at(entry.name);
    order_.push_back(chunk);
    places_.push_back({data_begin + entry.begin, data_begin + entry.end});
    written_.chunks[chunk] = {entry.name, data_begin + entry.begin, {}};
    written_.chunks[chunk].checksums.reserve(static_cast<size_t>(block_count(entry.size_bytes())));
  }
}

void DataFile::append(std::span<const std::byte> bytes) {
  HP_CHECK(file_.has_value(), kFailedPrecondition, "cannot write ", quoted_path(path_), ": it is finished");
  HP_CHECK(static_cast<int64_t>(bytes.size()) <= written_.bytes - position_, kInvalidArgument, quoted_path(path_),
           " has room for ", written_.bytes - position_, " more bytes, but gets ", bytes.size());
  while (!bytes.empty()) {
    while (places_[next_].end == position_) ++next_;
    const int64_t in_chunk = position_ - places_[next_].begin;
    const int64_t block_end = std::min(places_[next_].end, position_ - in_chunk % kBlockBytes + kBlockBytes);
    const size_t count = std::min(bytes.size(), static_cast<size_t>(block_end - position_));
    append_within_block(bytes.first(count));
    if (position_ == block_end) {
      written_.chunks[order_[next_]].checksums.push_back(std::exchange(checksum_, 0));
    }
    bytes = bytes.subspan(count);
  }
}

// The checksum first, then the copy to the system, which finds the bytes in the cache.
void DataFile::append_within_block(std::span<const std::byte> bytes) {
  checksum_ = crc32c(bytes, checksum_);
  write_all(file_->get(), bytes, path_);
  position_ += static_cast<int64_t>(bytes.size());
  if (position_ - told_ >= kWriteBackBytes) start_write_back();
}

// A hint: where the system does not know it, or fails, the flush at the end does the work and tells the fault.
void DataFile::start_write_back() {
  ::sync_file_range(file_->get(), told_, position_ - told_, SYNC_FILE_RANGE_WRITE);
  told_ = position_;
}

WrittenFile DataFile::finish() {
  HP_CHECK(file_.has_value(), kFailedPrecondition, "cannot finish ", quoted_path(path_), ": it is finished");
  HP_CHECK(position_ == written_.bytes, kInvalidArgument, quoted_path(path_), " got ", position_, " of ",
           written_.bytes, " bytes, header included");
  const int error = flush_descriptor(file_->get());
  HP_CHECK(error == 0, kDataLoss, "cannot flush ", quoted_path(path_), ": ", errno_text(error));
  file_.reset();
  return std::move(written_);
}

}  // namespace hyper_parallel
