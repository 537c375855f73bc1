#include "examples/reshard_model/model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/geometry/box.h"
#include "hyper_parallel/torch/scalar_dtype.h"

namespace hyper_parallel::examples {
namespace {

at::ScalarType torch_type(DType dtype) {
  const auto type = scalar_type(dtype);
  HP_CHECK(type.has_value(), kUnimplemented, "dtype ", to_string(dtype), " is not one that torch knows");
  return *type;
}

/// torch's own limit.
constexpr size_t kMostDims = 64;

void check_tensor(const TensorEntry& entry, std::span<const std::byte> bytes) {
  try {
    torch_type(entry.dtype);
    HP_CHECK(entry.shape.size() <= kMostDims, kUnimplemented, "it has ", entry.shape.size(),
             " dims but torch holds at most ", kMostDims);
    row_major_strides(entry.shape);
    // torch's bool has two values; any other byte would not survive a copy.
    HP_CHECK(entry.dtype != DType::kBool || std::ranges::all_of(bytes, [](std::byte b) { return b <= std::byte{1}; }),
             kUnimplemented, "it is BOOL with bytes other than 0 and 1");
  } catch (const Error& error) {
    raise(ErrorCode::kUnimplemented, "tensor ", quoted_name(entry.name), ": ", error.what());
  }
}

at::Tensor tensor_over(std::span<const std::byte> bytes, DType dtype, const std::vector<int64_t>& shape) {
  const auto options = at::TensorOptions().dtype(torch_type(dtype));
  if (bytes.empty()) return at::empty(shape, options);
  // The file decides the address; torch's kernels want elements aligned.
  if (reinterpret_cast<uintptr_t>(bytes.data()) % options.dtype().itemsize() != 0) {
    at::Tensor copy = at::empty(shape, options);
    std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
    return copy;
  }
  // from_blob takes a mutable pointer; the tensors of a model are only read, and the mapping would fault on a write.
  return at::from_blob(const_cast<std::byte*>(bytes.data()), shape, options);
}

Placement ragged(size_t dim_count, const std::vector<int64_t>& units) {
  std::vector<int64_t> dims(dim_count);
  std::iota(dims.begin(), dims.end(), int64_t{0});
  return RaggedShard(dims, units);
}

/// The fewest leading dims that the units' sum divides, 0 if there are none.
size_t fewest_dims(const at::Tensor& tensor, const std::vector<int64_t>& units) {
  const int64_t total = checked_sum(units);
  int64_t cells = 1;
  for (size_t k = 0; std::cmp_less(k, tensor.dim()); ++k) {
    cells *= tensor.size(static_cast<int64_t>(k));
    if (cells % total == 0) return k + 1;
  }
  return 0;
}

}  // namespace

void check_model_file(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  for (const TensorEntry& entry : file.header().tensors()) check_tensor(entry, file.bytes(entry));
}

Model::Model(const std::filesystem::path& path) : file_(path) {
  for (const TensorEntry& entry : file_.header().tensors()) {
    tensors_.push_back({entry.name, tensor_over(file_.bytes(entry), entry.dtype, entry.shape)});
  }
}

int64_t Model::bytes() const {
  int64_t total = 0;
  for (const ModelTensor& tensor : tensors_) total += static_cast<int64_t>(tensor.whole.nbytes());
  return total;
}

Placement ragged_or_replicate(const at::Tensor& tensor, const std::vector<int64_t>& units) {
  const size_t dims = fewest_dims(tensor, units);
  return dims == 0 ? Placement(Replicate{}) : ragged(dims, units);
}

Placement with_more_dims(const at::Tensor& tensor, const std::vector<int64_t>& units) {
  const size_t dims = fewest_dims(tensor, units);
  if (dims == 0) return Replicate{};
  return ragged(std::min(dims + 1, static_cast<size_t>(tensor.dim())), units);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor left = a.detach().contiguous();
  const at::Tensor right = b.detach().contiguous();
  return left.numel() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

}  // namespace hyper_parallel::examples
