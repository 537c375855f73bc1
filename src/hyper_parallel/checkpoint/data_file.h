#pragma once

// A fresh data file of a checkpoint, written as a stream: a safetensors file with chunks of tensors.
//
// The file is created under its final name, which must be free: nothing that exists is overwritten. It counts only once
// a metadata file names it, so it needs no temporary name. Each block's CRC32C is computed as its bytes pass by, and
// the system is told early to move them to the disk, so that `finish` has little left to flush.
//
//   DataFile file("data-0123456789abcdef-00000.safetensors", {{"w", DType::kF32, {2, 3}}, {"w", DType::kF32, {1, 2}}});
//   for (const size_t chunk : file.order()) file.append(bytes_of(chunk));
//   const WrittenFile written = file.finish();

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hyper_parallel/base/dims.h"
#include "hyper_parallel/base/dtype.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"

namespace hyper_parallel {

/// A chunk to be written: `sizes` cells of a tensor.
struct DataChunk {
  std::string tensor;
  DType dtype = DType::kF32;
  Dims sizes;
};

/// Where a chunk lies.
struct WrittenChunk {
  std::string key;                  // its name in the file
  int64_t begin = 0;                // byte in the file
  std::vector<uint32_t> checksums;  // CRC32C of each block of kBlockBytes
  friend bool operator==(const WrittenChunk&, const WrittenChunk&) = default;
};

struct WrittenFile {
  int64_t bytes = 0;                 // the whole file
  std::vector<WrittenChunk> chunks;  // in the order in which they were given to the constructor
  friend bool operator==(const WrittenFile&, const WrittenFile&) = default;
};

/// The keys under which chunks of these tensors stand in one file, each once: the tensor's name if it has one chunk,
/// else "name.__dcp_chunk_N", N counted from 0 past those that are the name of another tensor of the file. The one name
/// that the format keeps for itself, "__metadata__", gets a numbered key too.
/// Example: {"a", "w", "w"} -> {"a", "w.__dcp_chunk_0", "w.__dcp_chunk_1"}.
std::vector<std::string> assign_tensor_keys(std::span<const std::string> tensors);

class DataFile {
 public:
  /// Creates the file and writes its header. Throws as `open_file` does, for a file that exists too; kInvalidArgument
  /// for chunks that cannot stand in a safetensors file (a name that is not UTF-8, a header over the limit); kDataLoss
  /// if the system cannot write.
  DataFile(std::filesystem::path path, std::span<const DataChunk> chunks);
  /// Removes the file unless it was finished.
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  /// The order in which the chunks' bytes come: by descending dtype, then by key. Numbers count the chunks that were
  /// given to the constructor.
  const std::vector<size_t>& order() const { return order_; }

  /// The next bytes, row-major, little endian, in pieces of any size; a piece may reach over several chunks.
  /// Throws kInvalidArgument for more bytes than the chunks have; kDataLoss if the system takes less than all (disk
  /// full, quota, I/O): the file is then of no use.
  void append(std::span<const std::byte> bytes);

  /// Flushes the file, once. Throws kInvalidArgument if bytes are missing; kDataLoss if the system fails.
  WrittenFile finish();

  const std::filesystem::path& path() const { return path_; }

 private:
  struct Place {
    int64_t begin = 0;  // bytes in the file
    int64_t end = 0;
  };

  void arrange(std::span<const DataChunk> chunks);
  void append_within_block(std::span<const std::byte> bytes);
  void start_write_back();

  std::filesystem::path path_;
  std::vector<size_t> order_;
  std::vector<Place> places_;  // in the file's order
  WrittenFile written_;
  std::string header_;
  std::optional<FileDescriptor> file_;  // empty once finished
  size_t next_ = 0;                     // the place whose bytes come next
  int64_t position_ = 0;                // bytes of the file written so far
  int64_t told_ = 0;                    // bytes of the file that the system was told to move to the disk
  uint32_t checksum_ = 0;               // of the current block so far
};

}  // namespace hyper_parallel
