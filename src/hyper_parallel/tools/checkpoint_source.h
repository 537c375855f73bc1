#pragma once

// A checkpoint directory opened for reading by a tool: runs of a tensor's cells, whatever the chunks that hold them.
//
// All files are opened at once, so a save that replaces the checkpoint meanwhile does no harm. Every byte is verified
// against its checksum before it is handed out.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/geometry/interval.h"
#include "hyper_parallel/tools/opened_checkpoint.h"

namespace hyper_parallel {

/// All bytes of all tensors.
int64_t tensor_bytes(const CheckpointMetadata& metadata);

class CheckpointSource {
 public:
  /// Throws as OpenedCheckpoint, and kDataLoss for a data file that is missing, of another size than the metadata says,
  /// or no regular file.
  explicit CheckpointSource(std::filesystem::path directory);
  explicit CheckpointSource(OpenedCheckpoint opened);

  const std::filesystem::path& path() const { return opened_.directory().path(); }
  const CheckpointMetadata& metadata() const { return opened_.metadata(); }

  /// Fills `out` with the cells [begin, end) of the tensor's row-major order. The tensor is one of metadata(), `cells`
  /// are as many as `out` holds. Throws kDataLoss for bytes that do not have their checksum, kFailedPrecondition if the
  /// file was not among those that are kept open and a newer save has removed it.
  void read(const StoredTensor& tensor, Interval cells, std::span<std::byte> out);

 private:
  FileDescriptor open(int64_t file) const;

  OpenedCheckpoint opened_;
  std::vector<std::byte> block_ = std::vector<std::byte>(kBlockBytes);
};

/// Bytes of so many cells, which fill whole bytes.
int64_t cell_bytes(DType dtype, int64_t cells);

/// Reads runs of cells slab by slab, the next while the caller uses the last. Holds two slabs, whatever the sizes.
class SlabReader {
 public:
  /// `slab_bytes` is at least 16, so that a cell of any dtype fits.
  SlabReader(CheckpointSource& source, int64_t slab_bytes);

  /// Calls `use` for consecutive runs that make up `cells`; `bytes` are valid during the call.
  using Use = std::function<void(Interval cells, std::span<const std::byte> bytes)>;
  void stream(const StoredTensor& tensor, Interval cells, const Use& use);

  /// The most cells of a run; a multiple of 8, so that the borders are those of whole bytes.
  int64_t slab_cells(DType dtype) const;

 private:
  struct Slab {
    std::unique_ptr<std::byte[]> memory;
    int64_t capacity = 0;
    std::span<std::byte> bytes(int64_t count);
  };

  CheckpointSource& source_;
  int64_t slab_bytes_;
  Slab slabs_[2];
};

}  // namespace hyper_parallel
