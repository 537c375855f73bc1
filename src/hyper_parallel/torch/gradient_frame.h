#pragma once

// GradientFrame: how the gradient of a DTensor lies, and the way from its local tensor to a DTensor and back. Holds
// nothing of the tensor but its mesh, layout and shape.

#include <ATen/core/Tensor.h>

#include <vector>

#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel {

class GradientFrame {
 public:
  /// Of `tensor`: laid out as it is, Replicate where it is Partial.
  explicit GradientFrame(const DTensor& tensor);

  const std::vector<int64_t>& shape() const { return shape_; }

  /// The gradient whose part on this rank is `local`.
  DTensor dtensor_of(at::Tensor local) const;

  /// This rank's part of `gradient`, redistributed if it lies otherwise: every rank of the mesh must then call.
  /// Throws kInvalidArgument for another shape, and as `DTensor::redistribute`.
  at::Tensor local_of(const DTensor& gradient) const;

 private:
  MeshCommunicator mesh_;
  Layout layout_;
  std::vector<int64_t> shape_;
};

}  // namespace hyper_parallel
