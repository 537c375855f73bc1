#pragma once

// The specification's whitelist of elementwise operations in each form that applies: function, in place, with a tensor,
// with a number, reversed.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel::examples {

enum class Domain { kAny, kPositive };  // of the first operand

struct OperationForm {
  std::string name;
  Domain domain;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& y)> plain;
  std::function<DTensor(const DTensor& x, const DTensor& y)> distributed;
};

std::vector<OperationForm> operation_forms();

}  // namespace hyper_parallel::examples
