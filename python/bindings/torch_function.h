#pragma once

// `__torch_function__` of the class DTensor: where every operation of torch on a DTensor arrives.
//
// What is done with a function of torch is looked up by the function's identity:
//
//   operation   runs in C++ on the local tensors, no Python frame between (`operation_call.h`)
//   metadata    torch's own function, answered by the wrapper: shape, dtype, device
//   local       torch's own function, answered by the local tensor: requires_grad, is_leaf, grad_fn
//   handler     a Python callable (function, args, kwargs) of the package
//   else        the package's fallback, where no argument is ragged (`_fallback.py`); refused by name, alike on all
//               ranks, where one is or where the fallback gives NotImplemented

#include <torch/csrc/utils/pybind.h>

namespace hyper_parallel::bindings {

void bind_torch_function(py::module_& module);

}  // namespace hyper_parallel::bindings
