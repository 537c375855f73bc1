#include "hyper_parallel/torch/operand_checks.h"

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {

void check_same_rank(const Operation& operation, std::string_view name, const DTensor& tensor, const DTensor& other) {
  HP_CHECK(tensor.mesh().rank() == other.mesh().rank(), kFailedPrecondition, place(operation, name),
           " is the part of rank ", tensor.mesh().rank(), " but another operand that of rank ", other.mesh().rank());
}

void check_one_element(const Operation& operation, std::string_view name, const Argument& argument,
                       std::string_view advice) {
  const at::Tensor& tensor = *argument.plain_tensor();
  HP_CHECK(tensor.defined(), kType, place(operation, name), " is an undefined tensor");
  HP_CHECK(tensor.numel() == 1, kType, place(operation, name), " is ", argument.describe(),
           ", but beside a DTensor a plain tensor must have one element; ", advice);
}

void check_reaches_base(const Operation& operation, const DTensor& written) {
  HP_CHECK(!written.is_copied_view(), kInvalidArgument, "operation '", operation.name,
           "' would write to a view of a tensor that was redistributed for it, and the write would not reach that "
           "tensor; clone the view, or lay the tensor out so that the view need not move it");
}

}  // namespace hyper_parallel
