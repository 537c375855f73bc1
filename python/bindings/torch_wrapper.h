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

/// What a wrapper carries, its graph joined to whatever graph torch gave the wrapper. The reference lives as long as
/// the wrapper and until it is assigned. Throws kType for any other object; `what` names it in the text.
const DTensor& unwrap(py::handle object, std::string_view what);

/// The same for an object that `is_wrapper`.
const DTensor& unwrap_unchecked(py::handle wrapper);

/// Makes the wrapper carry another tensor: shape, dtype and graph follow.
void assign(py::handle wrapper, DTensor tensor);

/// Reads the local tensor's place in the graph again, after something that may have changed it: an in-place operation,
/// requires_grad_, detach_.
void follow_local(py::handle wrapper);

}  // namespace hyper_parallel::bindings
