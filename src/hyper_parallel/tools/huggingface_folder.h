#pragma once

// A Hugging Face model folder, opened for reading: `model.safetensors`, or shards that `model.safetensors.index.json`
// names:
//
//   {"metadata": {...}, "weight_map": {tensor: file, ...}}
//
// The index and the files must agree: each tensor of the index is in its file, each tensor of a file is in the index,
// and no name is in two files. No file lies outside the folder, and none is a symbolic link (a download cache is made
// of links: copy it with `cp -rL`).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/checkpoint/directory.h"
#include "hyper_parallel/tools/safetensors_reader.h"

namespace hyper_parallel {

inline constexpr std::string_view kHuggingfaceFile = "model.safetensors";
inline constexpr std::string_view kHuggingfaceIndex = "model.safetensors.index.json";

/// The largest index that is read.
inline constexpr int64_t kMaxHuggingfaceIndexBytes = 100'000'000;

/// The "weight_map" of an index: tensor to file. The text is untrusted. Throws kDataLoss, the message starts with
/// `source`: for text that is not JSON, a weight_map that is missing, there twice or no map of strings, a tensor twice.
std::map<std::string, std::string> parse_huggingface_index(std::string_view text, std::string_view source);

class HuggingfaceFolder {
 public:
  /// Opens all files and reads their headers. Throws kInvalidArgument if there is no folder, no model in it, or both a
  /// single file and an index; kDataLoss for what breaks the rules above.
  explicit HuggingfaceFolder(const std::filesystem::path& path);

  /// A tensor and the file that holds it.
  struct Tensor {
    const SafetensorsReader* file = nullptr;
    const TensorEntry* entry = nullptr;
  };
  /// Sorted by name.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  void open(const std::string& name);
  void compare(const std::map<std::string, std::string>& index, const std::string& source) const;

  Directory directory_;
  std::map<std::string, SafetensorsReader> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace hyper_parallel
