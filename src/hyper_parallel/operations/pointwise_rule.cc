#include "hyper_parallel/operations/pointwise_rule.h"

#include <algorithm>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {

Dims broadcast_shape(std::span<const Dims> shapes) {
  size_t ndim = 0;
  for (const Dims& shape : shapes) ndim = std::max(ndim, shape.size());
  Dims result(ndim, 1);
  for (const Dims& shape : shapes) {
    const size_t missing = ndim - shape.size();
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      int64_t& size = result[missing + dim];
      HP_CHECK(size == 1 || shape[dim] == 1 || size == shape[dim], kInvalidArgument, "shape ", tuple_text(shape),
               " does not broadcast with ", tuple_text(shapes.front()), ": sizes ", shape[dim], " and ", size,
               " meet, but must be equal or 1");
      if (size == 1) size = shape[dim];
    }
  }
  return result;
}

std::vector<int> broadcast_axes(const Dims& shape, const Dims& result_shape, std::span<const int> result_axes) {
  const size_t missing = result_shape.size() - shape.size();
  std::vector<int> axes;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    axes.push_back(shape[dim] == result_shape[missing + dim] ? result_axes[missing + dim] : kNoAxis);
  }
  return axes;
}

Rule pointwise_rule(std::span<const Dims> shapes) {
  const Dims shape = broadcast_shape(shapes);
  Rule rule;
  std::vector<int> axes;
  for (const int64_t cells : shape) {
    axes.push_back(static_cast<int>(rule.axes.size()));
    rule.axes.push_back({cells});
  }
  for (const Dims& operand : shapes) rule.operands.push_back({operand, broadcast_axes(operand, shape, axes)});
  rule.results.push_back({shape, std::move(axes)});
  return rule;
}

}  // namespace hyper_parallel
