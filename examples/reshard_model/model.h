#pragma once

// The tensors of a safetensors file as torch tensors over the mapped file, and how each is to be split.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "hyper_parallel/placement/placement.h"

namespace hyper_parallel::examples {

struct ModelTensor {
  std::string name;
  at::Tensor whole;  // a view of the mapped file: read only
};

/// Throws as `Model`, before torch is touched: the file is no safetensors file, or has a tensor that torch cannot hold
/// (its dtype, more than 64 dims, strides beyond int64), which is named.
void check_model_file(const std::filesystem::path& path);

class Model {
 public:
  /// Throws as SafetensorsFile, and kUnimplemented for a tensor that torch cannot hold.
  explicit Model(const std::filesystem::path& path);

  const std::vector<ModelTensor>& tensors() const { return tensors_; }
  int64_t bytes() const;

 private:
  SafetensorsFile file_;
  std::vector<ModelTensor> tensors_;
};

/// RaggedShard with `units` over the fewest leading dims whose cells the units' sum divides; Replicate() where nothing
/// divides.
Placement ragged_or_replicate(const at::Tensor& tensor, const std::vector<int64_t>& units);

/// The same with one more dim where the tensor has one; the shorter dims otherwise.
Placement with_more_dims(const at::Tensor& tensor, const std::vector<int64_t>& units);

/// Whether both hold the same bytes, shape and dtype.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace hyper_parallel::examples
