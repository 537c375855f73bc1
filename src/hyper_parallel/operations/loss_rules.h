#pragma once

// Losses: a value per sample, and what becomes of these values.

#include <optional>
#include <span>

#include "hyper_parallel/operations/rule.h"

namespace hyper_parallel {

enum class LossReduction { kNone, kMean, kSum };  // torch numbers them so

/// The rule whose only result is reduced to one cell: all its axes are reduced by sum. kNone changes nothing.
Rule reduced_loss(Rule rule, LossReduction reduction);

/// torch.nn.functional.cross_entropy and nll_loss: `input` (samples, classes, ...) or (classes,), `target` without the
/// classes, or, of class probabilities, of the input's shape, `weight` (classes,). Classes are needed whole.
///
/// Throws kInvalidArgument for shapes that do not fit.
Rule class_loss_rule(const Dims& input, const Dims& target, const std::optional<Dims>& weight, LossReduction reduction);

}  // namespace hyper_parallel
