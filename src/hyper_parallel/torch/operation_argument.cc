#include "hyper_parallel/torch/operation_argument.h"

#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

/// "True", "2", "2.5", "(1, -2j)".
std::string number_text(const at::Scalar& number) {
  if (number.isBoolean()) return number.toBool() ? "True" : "False";
  if (number.isFloatingPoint()) return str_cat(number.toDouble());
  if (number.isComplex()) return str_cat(number.toComplexDouble());
  return str_cat(number.toLong());
}

std::string tensor_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return str_cat("a plain tensor of shape ", tuple_text(tensor.sizes()));
}

}  // namespace

std::string Argument::describe() const {
  struct {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(const DTensor* tensor) const {
      return str_cat("a DTensor of shape ", tuple_text(tensor->shape()));
    }
    std::string operator()(const at::Tensor* tensor) const { return tensor_text(*tensor); }
    std::string operator()(const at::Scalar& number) const { return str_cat("the number ", number_text(number)); }
    std::string operator()(at::ScalarType dtype) const { return str_cat("the dtype ", c10::toString(dtype)); }
    std::string operator()(at::MemoryFormat format) const { return str_cat("the memory format ", format); }
    std::string operator()(std::string_view text) const { return str_cat("the text '", text, "'"); }
    std::string operator()(const List& items) const { return str_cat("a list of ", items.size()); }
  } describe_value;
  return std::visit(describe_value, value_);
}

}  // namespace hyper_parallel
