#include "hyper_parallel/checkpoint/storage_bytes.h"

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {

int64_t storage_bytes(DType dtype, std::span<const int64_t> shape, std::string_view owner) {
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    HP_CHECK(dim >= 0, kInvalidArgument, owner, " has shape ", shape_text(shape), ", but a dim must not be negative");
    HP_CHECK(!__builtin_mul_overflow(elements, dim, &elements), kInvalidArgument, owner, " has shape ",
             shape_text(shape), ", whose number of elements does not fit in int64");
  }
  int64_t bits = 0;
  HP_CHECK(!__builtin_mul_overflow(elements, bits_per_element(dtype), &bits), kInvalidArgument, owner, " has shape ",
           shape_text(shape), " of ", dtype, ", whose number of bits does not fit in int64");
  HP_CHECK(bits % 8 == 0, kInvalidArgument, owner, " has shape ", shape_text(shape), " of ", dtype, ", which takes ",
           bits, " bits, but a tensor must fill whole bytes");
  return bits / 8;
}

}  // namespace hyper_parallel
