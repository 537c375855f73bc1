#include "hyper_parallel/checkpoint/save_plan.h"

#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/byte_codec.h"
#include "hyper_parallel/checkpoint/parts_codec.h"
#include "hyper_parallel/checkpoint/storage_bytes.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

void write_tensor(ByteWriter& out, const PlannedTensor& tensor) {
  out.write_string(tensor.name);
  out.write_byte(static_cast<uint8_t>(tensor.dtype));
  out.write_dims(tensor.shape);
  out.write_count(tensor.boxes.size());
  for (const Box& box : tensor.boxes) {
    out.write_dims(box.offsets);
    out.write_dims(box.sizes);
  }
}

DType read_dtype(ByteReader& in) {
  const size_t number = in.read_byte();
  HP_CHECK(number < all_dtypes().size(), kInternal, "internal error: a message names the unknown dtype ", number);
  return all_dtypes()[number];
}

PlannedTensor read_tensor(ByteReader& in) {
  PlannedTensor tensor;
  tensor.name = in.read_string();
  tensor.dtype = read_dtype(in);
  tensor.shape = in.read_dims();
  const size_t boxes = in.read_count(16);
  tensor.boxes.reserve(boxes);
  for (size_t i = 0; i < boxes; ++i) {
    Dims offsets = in.read_dims();
    tensor.boxes.push_back({std::move(offsets), in.read_dims()});
  }
  return tensor;
}

}  // namespace

int64_t WriteItem::bytes() const {
  return storage_bytes(tensor->dtype, extent().sizes, str_cat("tensor ", quoted_name(tensor->name)));
}

PlannedTensor planned_tensor(std::string name, DType dtype, Dims shape, const Region& region) {
  return {std::move(name), dtype, std::move(shape), region_boxes(region)};
}

std::string encode_save_plan(const SavePlan& plan) {
  ByteWriter out;
  out.write_count(plan.tensors.size());
  for (const PlannedTensor& tensor : plan.tensors) write_tensor(out, tensor);
  write_named_values(out, plan.values);
  write_value(out, plan.structure);
  return out.take();
}

SavePlan decode_save_plan(std::string_view bytes) {
  ByteReader in(bytes);
  SavePlan plan;
  const size_t tensors = in.read_count(25);
  plan.tensors.reserve(tensors);
  for (size_t i = 0; i < tensors; ++i) plan.tensors.push_back(read_tensor(in));
  plan.values = read_named_values(in);
  plan.structure = read_value(in);
  in.finish();
  return plan;
}

}  // namespace hyper_parallel
