#pragma once

// Attributes of the class DTensor that C++ answers by itself. Read through torch's function protocol each would cost
// ten times as much, and an optimizer's step reads hundreds.

#include <torch/csrc/utils/pybind.h>

namespace hyper_parallel::bindings {

void bind_attributes(py::module_& module);

/// Turns `__torch_function__` of tensors off while torch's own function runs on a wrapper.
class WithoutTorchFunction {
 public:
  WithoutTorchFunction();
  ~WithoutTorchFunction();
  WithoutTorchFunction(const WithoutTorchFunction&) = delete;
  WithoutTorchFunction& operator=(const WithoutTorchFunction&) = delete;

 private:
  int before_;
};

}  // namespace hyper_parallel::bindings
