#include "hyper_parallel/tools/reshard_command.h"

#include <algorithm>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/file_system_writer.h"
#include "hyper_parallel/checkpoint/written_parts.h"
#include "hyper_parallel/tools/checkpoint_source.h"
#include "hyper_parallel/tools/sweep_writer.h"

namespace hyper_parallel {
namespace {

constexpr size_t kFilesAtOnce = 256;
// Larger slabs than this gain nothing and leave the processor's cache.
constexpr int64_t kLargestSlab = int64_t{8} << 20;
constexpr int64_t kOtherBuffers = 2 * kBlockBytes;  // a block that is cut, and cells that are packed

void check_paths(const std::filesystem::path& in, const std::filesystem::path& out) {
  std::error_code ignored;  // a path that is not there shows when it is opened
  HP_CHECK(!std::filesystem::equivalent(in, out, ignored), kInvalidArgument, "OUT is IN, ", quoted_path(in),
           "; a checkpoint is rewritten into another directory");
}

/// The files of all ranks that store anything, without names.
std::map<int64_t, std::vector<SweepChunk>> plan_ranks(const ReshardLayout& layout, const CheckpointMetadata& metadata) {
  std::map<int64_t, std::vector<SweepChunk>> ranks;
  for (int64_t tensor = 0; tensor < std::ssize(metadata.tensors()); ++tensor) {
    const StoredTensor& stored = metadata.tensors()[static_cast<size_t>(tensor)];
    for (RankBoxes& of_rank : stored_boxes(layout, stored)) {
      for (Box& box : of_rank.boxes) {
        stored.box_bytes(box);  // refuses what does not fill whole bytes
        ranks[of_rank.rank].push_back({tensor, std::move(box)});
      }
    }
  }
  return ranks;
}

/// Entries without bytes, which no file holds.
CheckpointParts parts_without_files(const CheckpointMetadata& metadata) {
  CheckpointParts parts;
  for (const StoredTensor& tensor : metadata.tensors()) {
    if (tensor.chunk_count() == 0) parts.tensors.emplace_back(tensor.name(), tensor.dtype(), tensor.shape());
  }
  return parts;
}

CheckpointMetadata united_metadata(std::vector<CheckpointParts> parts, const std::string& save_id,
                                   const CheckpointMetadata& source) {
  parts.push_back(parts_without_files(source));
  CheckpointParts united = unite_parts(std::move(parts));
  united.save_id = save_id;
  united.values = source.values();
  united.structure = source.structure();
  return CheckpointMetadata(std::move(united));
}

}  // namespace

void reshard_checkpoint(const std::filesystem::path& in, const std::filesystem::path& out,
                        const ReshardOptions& options, Progress& progress) {
  HP_CHECK(options.memory >= kMinReshardMemory, kInvalidArgument, "--memory is ", options.memory,
           " bytes, but must be at least ", kMinReshardMemory, " (8MiB)");
  check_paths(in, out);
  CheckpointSource source(in);
  auto ranks = plan_ranks(options.layout, source.metadata());
  SlabReader slabs(source, std::min((options.memory - kOtherBuffers) / 2, kLargestSlab));
  FileSystemWriter writer(out);
  const std::string save_id = writer.begin();
  progress.start(tensor_bytes(source.metadata()));
  std::vector<CheckpointParts> parts;
  for (auto rank = ranks.begin(); rank != ranks.end();) {
    std::vector<SweepFile> files;
    for (; rank != ranks.end() && files.size() < kFilesAtOnce; ++rank) {
      files.push_back({data_file_name(save_id, rank->first), std::move(rank->second)});
    }
    for (CheckpointParts& written : sweep_into_files(source.metadata(), slabs, out, files, progress)) {
      parts.push_back(std::move(written));
    }
  }
  writer.publish(united_metadata(std::move(parts), save_id, source.metadata()));
  progress.finish();
}

}  // namespace hyper_parallel
