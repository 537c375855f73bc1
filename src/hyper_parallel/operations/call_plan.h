#pragma once

// CallPlan: what one rank does in a call of an operation, all that follows from the rule, the layouts and the rank.
//
// Pure, so that the plan of an equal call is kept: `CallCache`.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hyper_parallel/operations/propagate.h"

namespace hyper_parallel {

struct CallPlan {
  Rule rule;
  Propagation propagation;
  bool is_member = false;          // whether the rank lies in the mesh; what follows is empty if not
  std::vector<bool> adds;          // of each operand: false for an addend that another rank adds in
  std::vector<Dims> local_shapes;  // of this rank's part of each result
  friend bool operator==(const CallPlan&, const CallPlan&) = default;
};

/// Throws as `propagate`.
CallPlan plan_call(std::string_view operation, Rule rule, std::span<const GivenOperand> operands,
                   std::optional<size_t> written, int64_t rank);

}  // namespace hyper_parallel
