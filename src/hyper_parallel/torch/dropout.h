#pragma once

// Dropout: each element of the whole tensor is zeroed with probability p, the others are scaled by 1 / (1 - p).
//
// Which ones is a function of their positions in the whole tensor (`random_state.h`): the same under every layout, the
// same on all replicas. The gradient passes through the same mask. The result lies as x does; nothing is communicated
// but the seed at the first random call on a mesh.
//
// In evaluation, for p = 0 and without elements the result is x itself and no random number is drawn; p = 1 gives zeros
// and draws none. Throws, on every rank and before anything is drawn: kInvalidArgument for p outside [0, 1] and for a
// Partial x (redistribute it first: a share is no value that could be dropped), kUnimplemented for a ragged x, kType
// for an x that is not floating point.

#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel {

enum class DropoutMode { kTraining, kEvaluation };

/// Example: dropout(x, 0.1) in training.
DTensor dropout(const DTensor& x, double p = 0.5, DropoutMode mode = DropoutMode::kTraining);

/// The same in x's own storage.
void dropout_(DTensor& x, double p = 0.5, DropoutMode mode = DropoutMode::kTraining);

}  // namespace hyper_parallel
