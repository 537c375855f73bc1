#pragma once

// CheckpointMetadata: what a checkpoint directory holds and where, as a value that is always consistent.
//
// Definitions
//   chunk     a box of a tensor's cells that is stored in one piece: row-major, contiguous, little endian
//   block     1 MiB of a chunk, counted from its first byte; the last one is shorter. Each has a CRC32C.
//   key       the name that the chunk has in its data file, which is a safetensors file
//
// Invariants of every CheckpointMetadata
//   * a tensor's chunks are disjoint and fill its shape; a tensor without cells has none
//   * a chunk's bytes lie inside its file, and no two chunks share a byte: tensors are no larger than the files
//   * the save's id is 16 lower-case hex digits, all names and keys are UTF-8
//   * each file is named by one path component that is not hidden (no '/', no leading '.'), files and entries are
//     sorted by name and unique; no name is both a tensor's and a value's
//   * the structure, where there is one, has every entry's name as a leaf exactly once, and no other leaf
//
// A million chunks are ordinary. They are rows of integers, not objects.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/base/dtype.h"
#include "hyper_parallel/checkpoint/value.h"
#include "hyper_parallel/geometry/box.h"

namespace hyper_parallel {

/// The unit of checksums.
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;

/// The number of blocks of a chunk of `bytes`.
inline int64_t block_count(int64_t bytes) { return bytes / kBlockBytes + (bytes % kBlockBytes != 0 ? 1 : 0); }

struct StoredFile {
  std::string name;   // inside the checkpoint's directory
  int64_t bytes = 0;  // the whole file
  friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

/// One chunk, read out of its row.
struct StoredChunk {
  Box box;                              // cells, in tensor coordinates
  int64_t file = 0;                     // index into CheckpointMetadata::files()
  int64_t begin = 0;                    // byte in the file
  int64_t bytes = 0;                    // box.numel() elements
  std::string_view key;                 // the tensor's name unless the chunk has a key of its own
  std::span<const uint32_t> checksums;  // CRC32C of each block

  Interval range() const { return {begin, begin + bytes}; }
};

/// Where a chunk lies.
struct ChunkPlace {
  int64_t file = 0;   // index into CheckpointMetadata::files()
  int64_t begin = 0;  // byte in the file
  int64_t bytes = 0;
};

/// A tensor and its chunks, in any number. Appending checks each chunk by itself, the metadata's constructor checks
/// them together.
class StoredTensor {
 public:
  /// Throws kInvalidArgument for a shape with a negative dim or without a size.
  StoredTensor(std::string name, DType dtype, Dims shape);

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  /// Bytes of the whole tensor.
  int64_t bytes() const { return bytes_; }

  int64_t chunk_count() const { return static_cast<int64_t>(first_checksum_.size()); }
  /// The chunk with number `index`, in [0, chunk_count()). Its key and checksums live as long as this tensor.
  StoredChunk chunk(int64_t index) const;
  Box chunk_box(int64_t index) const;
  ChunkPlace chunk_place(int64_t index) const;

  void reserve(int64_t chunks);
  /// Bytes of a chunk of that box. Throws kInvalidArgument for a box of another rank, outside the shape or without
  /// cells, and for a box of a sub-byte dtype that does not fill whole bytes.
  int64_t box_bytes(const Box& box) const;
  /// An empty `key` stands for the tensor's name. Throws kInvalidArgument as `box_bytes` does, for a negative `file` or
  /// `begin`, a key that is not UTF-8, and for checksums that are not as many as the chunk's blocks.
  void add_chunk(const Box& box, int64_t file, int64_t begin, std::string_view key,
                 std::span<const uint32_t> checksums);

  /// Gives every chunk another file number: `numbers[old]`. Throws kInvalidArgument for a chunk whose file has none.
  void renumber_files(std::span<const int64_t> numbers);

  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;

 private:
  size_t row_size() const { return 2 + 2 * shape_.size(); }
  int64_t unchecked_bytes(std::span<const int64_t> sizes) const;
  void append_key(std::string_view key);

  std::string name_;
  DType dtype_;
  Dims shape_;
  int64_t bytes_ = 0;
  std::vector<int64_t> rows_;     // per chunk: file, begin, offsets, sizes
  std::vector<char> key_text_;    // the chunks' own keys, end to end
  std::vector<size_t> key_ends_;  // per chunk, in key_text_; empty if no chunk has a key of its own
  std::vector<uint32_t> checksums_;
  std::vector<size_t> first_checksum_;  // per chunk
};

struct NamedValue {
  std::string name;
  Value value;
  friend bool operator==(const NamedValue&, const NamedValue&) = default;
};

/// A data set's parts before they are checked together.
struct CheckpointParts {
  std::string save_id;  // 16 lower-case hex digits; names the save that wrote it
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;
  std::vector<NamedValue> values;
  /// How the names nest in the state dict: dicts, lists and tuples whose leaves are the entries' names. None: a flat
  /// dict of names.
  Value structure;
  friend bool operator==(const CheckpointParts&, const CheckpointParts&) = default;
};

class CheckpointMetadata {
 public:
  /// No files, no entries, and an id of zeros.
  CheckpointMetadata() { parts_.save_id = std::string(16, '0'); }
  /// Sorts files, tensors and values by name. Throws kInvalidArgument, naming tensor or file, if an invariant does not
  /// hold. Costs O(n log n) for n chunks.
  explicit CheckpointMetadata(CheckpointParts parts);

  const std::string& save_id() const { return parts_.save_id; }
  const std::vector<StoredFile>& files() const { return parts_.files; }
  const std::vector<StoredTensor>& tensors() const { return parts_.tensors; }
  const std::vector<NamedValue>& values() const { return parts_.values; }
  const Value& structure() const { return parts_.structure; }

  /// The entry of that name, or nullptr. O(log n).
  const StoredTensor* find_tensor(std::string_view name) const;
  const Value* find_value(std::string_view name) const;

  friend bool operator==(const CheckpointMetadata&, const CheckpointMetadata&) = default;

 private:
  CheckpointParts parts_;
};

/// True for a name that a data file may have: one path component, not empty, not hidden, no control characters, UTF-8
/// of at most 255 bytes.
bool is_file_name(std::string_view name);

/// True for 16 lower-case hex digits.
bool is_save_id(std::string_view text);

}  // namespace hyper_parallel
