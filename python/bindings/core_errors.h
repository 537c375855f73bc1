#pragma once

// The library's errors as Python exceptions.
//
// The classes are made once, by `_core`, and are attributes of that module; every other module finds them there. Each
// derives from HyperParallelError and from the builtin that Python users expect:
//
//   kInvalidArgument    InvalidArgumentError(ValueError)      kUnimplemented UnimplementedError(NotImplementedError)
//   kType               ArgumentTypeError(TypeError)          kFailedPrecondition FailedPreconditionError(RuntimeError)
//   kOutOfRange         OutOfRangeError(IndexError)           kDataLoss            CheckpointError(OSError)
//   kInternal           InternalError(RuntimeError)

#include <pybind11/pybind11.h>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel::bindings {

/// Makes the classes and adds them to the module `_core`.
void bind_errors(pybind11::module_& core);

/// Sets the Python error that `error` is; the caller holds the GIL and returns as after any Python error. For functions
/// that CPython calls directly; in functions bound by pybind11 the registered translator calls it.
void translate(const Error& error) noexcept;

/// Registers the translation of `Error` for the functions of the module that is being initialised.
void register_error_translator();

}  // namespace hyper_parallel::bindings
