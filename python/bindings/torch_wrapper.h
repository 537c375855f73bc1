#pragma once

// The C++ half of the Python class DTensor: a torch.Tensor of logical shape without storage that carries a DTensor.
//
// Shape, dtype, device and version of the wrapper are those of the DTensor, so that torch's own code (optimizers that
// group tensors by device and dtype, the autograd engine) reads the truth. Values are not there to read: every
// operation is taken at `__torch_function__`, and what slips past meets `__torch_dispatch__`, which raises.
//
// The autograd graph lives on the local tensors. Two nodes join it to the graph that torch makes of wrappers where they
// are used as tensors (autograd.Function, reentrant checkpointing, torch.autograd.backward):
//
//   leaving    the wrapper's grad_fn: a gradient of the wrapper goes on to the local tensor
//   entering   the local tensor's grad_fn where torch gave the wrapper a graph of its own: a gradient of the local
//              tensor goes on, wrapped, to that graph
//
// All functions need the GIL.

#include <torch/csrc/autograd/python_variable.h>

#include <memory>

#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel::bindings {

/// Names the Python class that wrappers are instances of, when the package is imported.
void set_wrapper_class(py::type wrapper_class);

/// True for an instance of the wrapper class.
bool is_wrapper(py::handle object);

/// True for the wrapper class and classes made from it.
bool is_wrapper_class(py::handle type);

/// A new wrapper.
py::object wrap(DTensor tensor);

/// What a wrapper carries, its graph joined to whatever graph torch gave the wrapper. Shared, so that it can be used
/// without the GIL while another thread assigns to the wrapper. Throws kType for any other object; `what` names it.
std::shared_ptr<const DTensor> unwrap(py::handle object, std::string_view what);

/// The same for an object that `is_wrapper`.
std::shared_ptr<const DTensor> unwrap_unchecked(py::handle wrapper);

/// The gradient of the carried leaf as a wrapper, None if there is none; the same object while it is the same gradient.
py::object gradient_wrapper(py::handle wrapper);

/// wrapper.data = other: the local tensor takes the other's values, dtype, layout and shape and stays the leaf it is.
/// Throws kFailedPrecondition for another rank's part, and for another layout or shape while there is a gradient.
void set_data(py::handle wrapper, py::handle other);

/// Tells that `view`'s local tensor is a view of `base`'s: a write through it changes the base's place in the graph.
void set_base(py::handle view, py::handle base);

/// A wrapper that may go: unlike Python's weak references it does not keep torch from swapping the tensor.
class WeakWrapper {
 public:
  explicit WeakWrapper(py::handle wrapper);
  /// The wrapper, None if it is gone.
  py::object get() const;

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> impl_;
};

/// Reads the local tensor's place in the graph again, after something that may have changed it: an in-place operation,
/// requires_grad_, detach_.
void follow_local(py::handle wrapper);

}  // namespace hyper_parallel::bindings
