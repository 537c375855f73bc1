#pragma once

// Compares a differentiable collective's gradient with finite differences of the sum of all ranks' losses.

#include <ATen/ATen.h>

#include <functional>

#include "tests/threaded/thread_backend.h"

namespace hyper_parallel::test {

using Differentiable = std::function<at::Tensor(const at::Tensor&)>;

/// A loss that is not linear and differs per rank: (rank + 1) * sum(w * sin(output)), w fixed and unlike per element.
at::Tensor uneven_loss(const ThreadRank& self, const at::Tensor& output);

/// Expects (as gtest expectations) that on every rank the gradient of `uneven_loss(collective(input))` equals the
/// finite differences of that loss summed over all ranks. `input` is double; all ranks of `self.group` call together.
void expect_gradient(const ThreadRank& self, const Differentiable& collective, const at::Tensor& input);

/// The same one derivative higher: the gradient itself, as a function of the input, is put to `expect_gradient`.
void expect_second_gradient(const ThreadRank& self, const Differentiable& collective, const at::Tensor& input);

}  // namespace hyper_parallel::test
