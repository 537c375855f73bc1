#include "hyper_parallel/torch/gradient_frame.h"

#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/redistribute_local.h"

namespace hyper_parallel {

GradientFrame::GradientFrame(const DTensor& tensor)
    : mesh_(tensor.mesh()), layout_(gradient_layout(tensor.layout())), shape_(tensor.shape()) {}

DTensor GradientFrame::dtensor_of(at::Tensor local) const {
  return DTensor::unchecked(std::move(local), mesh_, layout_, shape_);
}

at::Tensor GradientFrame::local_of(const DTensor& gradient) const {
  HP_CHECK(gradient.shape() == shape_, kInvalidArgument, "the gradient of a DTensor of shape ", tuple_text(shape_),
           " has shape ", tuple_text(gradient.shape()));
  HP_CHECK(gradient.mesh().rank() == mesh_.rank(), kFailedPrecondition, "the gradient of a DTensor of rank ",
           mesh_.rank(), " is the part of rank ", gradient.mesh().rank());
  return gradient.redistribute(layout_.mesh(), layout_.placements()).local();
}

}  // namespace hyper_parallel
