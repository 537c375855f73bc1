#pragma once

// Operands of an elementwise operation: whose layout the result takes, and the local tensor of each operand that lies
// as it does.
//
// The *frame* is the first ragged operand, else the one that is written, else the first DTensor that is more than one
// replicated element, else the first. Beside it an operand may be
//
//   a DTensor that lies as the frame   Equal mesh and shape, and every rank owns the same cells. Two ragged layouts
//                                      with equal runs count, whatever their dims and units; two kinds of placements
//                                      never do.
//   a Replicate DTensor                Of the same shape, beside a ragged frame: sliced, without communication. Its
//                                      gradient is gathered.
//   one element                        A plain tensor, or a Replicate DTensor of another shape, of no more dims than
//                                      the frame. It keeps its class in type promotion: () is a 0-dim tensor, (1,) one
//                                      with dims. Its gradient is summed over the mesh dims that split the frame, by
//                                      an all-reduce that every rank of the mesh enters.
//   a number
//
// Everything is decided from layouts and shapes, which all ranks know, never from this rank's sizes.

#include <ATen/core/Tensor.h>

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

/// The frame. Throws kType without a DTensor, or where a plain tensor would be written; kInvalidArgument where a
/// DTensor would be written beside a ragged one.
const DTensor& frame_of(const Operation& operation, const BoundArguments& arguments);

/// The element of a replicated DTensor; on ranks outside the mesh, which hold none, a one of the same dtype and dims:
/// it may divide.
at::Tensor element_of(const DTensor& tensor);

/// The local tensor of a tensor operand, of sizes that broadcast to those of the frame's local tensor; differentiable.
/// Throws on all ranks: kInvalidArgument for unlike meshes, and beside a ragged frame for unlike shapes, runs or
/// placements; kUnimplemented beside other frames; kType for a plain tensor of more than one element; kInvalidArgument
/// for one of more dims than the frame.
at::Tensor aligned_local(const Operation& operation, const BoundArgument& argument, const DTensor& frame);

}  // namespace hyper_parallel
