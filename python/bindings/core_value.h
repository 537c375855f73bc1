#pragma once

// The values of a state dict: Python objects to the core's Value and back.

#include <pybind11/pybind11.h>

#include <string_view>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

namespace hyper_parallel::bindings {

/// None, bool, int, float, complex, str, bytes, list, tuple or dict, nested, and exactly of these types: what comes
/// back must have the type that went in. Throws kType for anything else and kInvalidArgument for text that is not UTF-8
/// and for values nested deeper than kMaxValueDepth; `what` starts the message.
Value value_from_python(pybind11::handle object, std::string_view what);

/// Throws kDataLoss, naming `what`, for a value that Python cannot hold: a dict with a list as a key, an int of more
/// digits than Python converts.
pybind11::object value_to_python(const Value& value, std::string_view what);

/// A dict of names and values, in its order.
std::vector<NamedValue> named_values_from_python(pybind11::handle values, std::string_view argument);
pybind11::dict named_values_to_python(const std::vector<NamedValue>& values);

}  // namespace hyper_parallel::bindings
