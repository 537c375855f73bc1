#pragma once

// What a safetensors file says about its tensors, as a value that is always consistent.
//
// Definitions
//   data section   the bytes of a file after its header; all offsets count from its first byte
//   entry          a tensor's name, dtype, shape and half-open byte range [begin, end) in the data section
//
// Invariants of every SafetensorsHeader
//   * names are unique, well-formed UTF-8, and none is "__metadata__"
//   * entries stand in the order of their ranges, and the ranges tile [0, data_size()): no hole, no overlap
//   * end - begin is exactly the size of dtype and shape
// An empty tensor takes no byte and may stand at any seam of the tiling.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/base/dtype.h"

namespace hyper_parallel {

/// A tensor and its place. `shape` is () for a 0-d tensor.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the data section
  int64_t end = 0;

  int64_t size_bytes() const { return end - begin; }
  bool operator==(const TensorEntry&) const = default;
};

/// A tensor that has no place yet.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  bool operator==(const TensorSpec&) const = default;
};

/// The free-form string map of a file ("format": "pt").
using SafetensorsMetadata = std::map<std::string, std::string>;

class SafetensorsHeader {
 public:
  /// No tensors, no metadata: a valid file.
  SafetensorsHeader() = default;

  /// The entries may come in any order. Throws kInvalidArgument, with the tensor's name, if an invariant does not hold.
  explicit SafetensorsHeader(std::vector<TensorEntry> tensors, SafetensorsMetadata metadata = {});

  /// All entries in the order of their bytes; tensors without bytes at one place by descending DType, then by name.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

  /// Bytes of the data section: the end of the last tensor.
  int64_t data_size() const { return data_size_; }

  /// The entry of that name, or nullptr. The pointer lives as long as this header. Takes O(log n) time.
  const TensorEntry* find(std::string_view name) const;

  /// The entry of that name. Throws kInvalidArgument if there is none.
  const TensorEntry& at(std::string_view name) const;

  bool operator==(const SafetensorsHeader&) const = default;

 private:
  void index_names();
  void check_tiling();

  std::vector<TensorEntry> tensors_;
  std::vector<size_t> by_name_;  // positions in tensors_, ordered by name
  SafetensorsMetadata metadata_;
  int64_t data_size_ = 0;
};

/// The header of a file that holds these tensors: by descending DType, then by name, one after the other. Every tensor
/// is then aligned to its element, and the layout is the one that the stock library writes.
/// Throws kInvalidArgument for a shape that has no size, a name twice, or a total that leaves int64.
/// Example: arrange_tensors({{"b", DType::kU8, {3}}, {"a", DType::kF32, {2}}}) puts a at [0, 8) and b at [8, 11).
SafetensorsHeader arrange_tensors(std::vector<TensorSpec> specs, SafetensorsMetadata metadata = {});

}  // namespace hyper_parallel
