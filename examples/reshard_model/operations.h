#pragma once

// The whitelisted elementwise operations, each in each form, on tensors of the model: forward and backward against
// plain torch.

#include <string>
#include <vector>

#include "examples/reshard_model/model.h"
#include "examples/reshard_model/ranks.h"
#include "examples/reshard_model/report.h"

namespace hyper_parallel::examples {

struct OperationsResult {
  PhaseResult phase;   // `wrong`: "log_ on encoder.weight: gradient differs"
  int64_t forms = 0;   // operations times forms
  int64_t checks = 0;  // forward and backward comparisons on each rank
};

OperationsResult run_operations(const Ranks& ranks, const Model& model, const std::vector<int64_t>& units);

}  // namespace hyper_parallel::examples
